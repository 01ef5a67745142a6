package audit

import (
	"strconv"
	"strings"
)

// statements name the schema. The planner knows nothing of how few rows a batch stages, so begin keeps it from reading a whole
// table to join them.
type statements struct {
	begin                                              string
	claim, fence, park, applied                        string
	forgetTurns, forgetSessions, forgetRedacted, stand string
	clearLedger, clearSecurity                         string
	copyLedger, copySecurity, copyTurns                string
	mergeTurns, answer, replace                        string
	mergeSessions, moveSessions, link                string
	head, cut, sessionTurns, identityTurns             string
}

func newStatements(schema string) statements {
	s := texts()
	r := strings.NewReplacer("{s}", schema, "{ledger}", ledgerColumns.names(), "{security}", securityColumns.names(),
		"{turn}", turnColumns.names(), "{turn rows}", turnColumns.unnest("r"), "{set turn}", turnColumns.assign("excluded", "turn_id"),
		"{answer rows}", answerColumns.unnest("a"),
		"{session}", sessionColumns.names(), "{session rows}", sessionColumns.unnest("r"), "{set session}", sessionColumns.assign("excluded", "session_id"),
		"{activity rows}", activityColumns.unnest("r"), "{move session}", activityColumns.assign("r", "session_id"),
		"{link}", linkColumns.names(), "{link rows}", linkColumns.unnest("r"), "{set link}", linkColumns.assign("excluded", "session_id"))
	for _, text := range s.all() {
		*text = r.Replace(*text)
	}
	return s
}

func texts() statements {
	return statements{
		begin: `begin; set local synchronous_commit = off; set local jit = off; set local enable_hashjoin = off;
			set local enable_mergejoin = off; set local idle_in_transaction_session_timeout = '15s'`,

		claim: `insert into {s}.projection_checkpoints as c (projection, partition, seq, event_id, epoch) values ($1, $2, 0, '', 1)
			on conflict (projection, partition) do update set epoch = c.epoch + 1
			returning stream_created_ns, seq, event_id, epoch`,
		fence: `update {s}.projection_checkpoints set stream_created_ns = $5, seq = $6, event_id = $7, applied_at = now()
			where projection = $1 and partition = $2 and seq = $3 and epoch = $4`,
		park: `insert into {s}.dead_letters as d (projection, partition, seq, recorded_at, turn_id, event_id, type, session_id, identity_id, reason)
			values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
			on conflict (projection, partition, seq) do update set reason = excluded.reason, attempts = d.attempts + 1, parked_at = now()`,
		applied: `select seq from {s}.projection_checkpoints where projection = $1 and partition = $2`,

		forgetTurns: `delete from {s}.turns where session_id = any($1)`,
		forgetSessions: `delete from {s}.event_ledger l using unnest($3::text[], $4::bigint[]) as gone (session_id, link)
			where l.partition = $1 and l.seq <= $2 and l.session_id = gone.session_id and l.seq <> gone.link`,
		forgetRedacted: `with gone as materialized (select * from unnest($3::text[], $4::uuid[]) as g (session_id, turn_id))
			delete from {s}.event_ledger l where l.partition = $1 and l.seq <= $2 and l.session_id = any($3)
			and ((l.session_id, l.turn_id) in (select * from gone) or (l.session_id, l.replaces_turn_id) in (select * from gone))`,
		stand: `select turn_id from {s}.turns where turn_id = any($1)`,

		clearLedger:   `delete from {s}.event_ledger where partition = $1 and seq > $2 and seq <= $3`,
		clearSecurity: `delete from {s}.security_events where partition = $1 and seq > $2 and seq <= $3`,

		copyLedger:   `copy {s}.event_ledger ({ledger}) from stdin binary`,
		copySecurity: `copy {s}.security_events ({security}) from stdin binary`,
		copyTurns:    `copy {s}.turns ({turn}) from stdin binary`,
		mergeTurns: `insert into {s}.turns ({turn}) select * from {turn rows}
			on conflict (turn_id) do update set {set turn}`,
		answer: `update {s}.turns t set status = 'finalized', final_position = a.final_position, finalized_at = a.finalized_at,
			finalized_ns = a.finalized_ns, answer_translated_is_fallback = a.answer_translated_is_fallback,
			answer_neutral = a.answer_neutral, answer_translated = a.answer_translated, answer_messages = a.answer_messages,
			metadata = coalesce(t.metadata || a.metadata, t.metadata, a.metadata)
			from {answer rows} where t.turn_id = a.turn_id and t.status = 'pending'`,
		replace: `update {s}.turns t set status = 'replaced', replaced_by_turn_id = r.by
			from unnest($1::uuid[], $2::uuid[]) as r (turn_id, by) where t.turn_id = r.turn_id`,
		mergeSessions: `insert into {s}.sessions ({session}) select * from {session rows}
			on conflict (session_id) do update set {set session}`,
		moveSessions: `update {s}.sessions s set {move session} from {activity rows} where s.session_id = r.session_id`,
		link: `insert into {s}.session_links ({link}) select * from {link rows}
			on conflict (session_id) do update set {set link}`,

		head: `select {session}, c.seq from {s}.sessions s join {s}.projection_checkpoints c using (partition)
			where s.session_id = $1 and c.projection = $2`,
		cut: `select place from {s}.turns where session_id = $1 and status = 'finalized' and place > $2
			order by place desc, record_version desc offset $3 limit 1`,
		sessionTurns: `select {turn} from {s}.turns where session_id = $1 and place >= $2 order by place, record_version`,
		identityTurns: `select {turn} from {s}.turns
			where identity_id = $1 and status in ('pending', 'finalized')
			and (created_at, partition, place, record_version) > ($2, $3, $4, $5)
			and (created_at, created_ns) >= ($6, $7) and (created_at, created_ns) < ($8, $9)
			order by created_at, partition, place, record_version limit $10`,
	}
}

func (s *statements) all() []*string {
	return []*string{
		&s.begin, &s.claim, &s.fence, &s.park, &s.applied, &s.forgetTurns, &s.forgetSessions, &s.forgetRedacted, &s.stand,
		&s.clearLedger, &s.clearSecurity,
		&s.copyLedger, &s.copySecurity, &s.copyTurns, &s.mergeTurns, &s.answer, &s.replace, &s.mergeSessions, &s.moveSessions, &s.link, &s.head, &s.cut, &s.sessionTurns, &s.identityTurns,
	}
}

// columns of a table, with their types.
type columns []struct{ name, typ string }

func (c columns) list(of func(i int) string) string {
	parts := make([]string, 0, len(c))
	for i := range c {
		if part := of(i); part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, ", ")
}

func (c columns) names() string { return c.list(func(i int) string { return c[i].name }) }

// unnest gives the rows whose columns are the statement's parameters.
func (c columns) unnest(alias string) string {
	arrays := c.list(func(i int) string { return "$" + strconv.Itoa(i+1) + "::" + c[i].typ + "[]" })
	return "unnest(" + arrays + ") as " + alias + " (" + c.names() + ")"
}

// assign sets all but the key to what another row says.
func (c columns) assign(from, key string) string {
	return c.list(func(i int) string {
		if c[i].name == key {
			return ""
		}
		return c[i].name + " = " + from + "." + c[i].name
	})
}
