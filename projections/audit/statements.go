package audit

import (
	"strconv"
	"strings"
)

// statements name the schema. Their plans are kept, also those that were made while the tables were small: so begin and read
// keep the planner from reading a table from end to end, which it would go on doing when the table has grown.
type statements struct {
	begin, read                                    string
	claim, fence, applied                          string
	checkpoints, generation, fenceAll, gate, share string
	fenceBefore                                    string
	formerLetters, forgetLetter, lock, wentOn      string
	clearLedgerOf, clearSecurityOf                 string
	forgetAnswers, forgetQuestions                 string
	forgetSessions, forgetRedacted, stand          string
	clearLedger, clearSecurity                     string
	copyLedger, copySecurity                       string
	copyQuestions, copyAnswers                     string
	mergeQuestions, mergeAnswers, replace          string
	mergeSessions, moveSessions, link              string
	head, cut, sessionTurns, identityTurns, recall string
}

func newStatements(schema string) statements {
	s := texts()
	r := strings.NewReplacer("{s}", schema, "{undivided}", undivided, "{ledger}", ledgerColumns.names(), "{security}", securityColumns.names(),
		"{question}", questionColumns.names(), "{question rows}", questionColumns.rows(), "{set question}", questionColumns.assign("excluded", "turn_id"),
		"{answer}", answerColumns.names(), "{answer rows}", answerColumns.rows(), "{set answer}", answerColumns.assign("excluded", "turn_id"),
		"{turn}", turnColumns,
		"{session}", sessionColumns.names(), "{session rows}", sessionColumns.rows(), "{set session}", sessionColumns.assign("excluded", "session_id"),
		"{activity rows}", activityColumns.rows(), "{move session}", activityColumns.assign("r", "session_id"),
		"{link}", linkColumns.names(), "{link rows}", linkColumns.rows(), "{set link}", linkColumns.assign("excluded", "session_id"))
	for _, text := range s.all() {
		*text = r.Replace(*text)
	}
	return s
}

const byIndex = `set local enable_seqscan = off; set local enable_hashjoin = off; set local enable_mergejoin = off; set local jit = off`

// recallTurnsByWords takes the words of an identity's newest turns from their texts, each time that it is asked.
// Taking them costs some 0.1 ms a turn, so turns are chosen for it by plain search: how many words of the query begin in them as
// their stems do. (A stem is how its words begin but for its last letter: happy and happi.) Grams (see there) stand for words
// that no spaces divide; turns with less than half as many of them as the best one has are left out, since some are in every sentence.
const recallTurnsByWords = `with words as (select string_agg(quote_literal(lexeme), ' | ')::tsquery as asked,
		array_agg(left(lexeme, case when length(lexeme) <= 3 or lexeme ~ '[0-9]' then length(lexeme) else length(lexeme) - 1 end)) || $7::text[] as stems
		from unnest(to_tsvector('english', regexp_replace($2, {undivided}, ' ', 'g')))),
	recent as (select q.turn_id, q.created_at, left(q.question_neutral, $5) as question, left(a.answer_neutral, $5) as answer
		from {s}.questions q join {s}.answers a using (turn_id)
		where q.identity_id = $1 and q.deleted_at is null and q.replaced_by_turn_id is null
		order by q.created_at desc limit $3),
	likely as materialized (select recent.*, (select count(*) from unnest(stems) as stem where strpos(texts.lower, stem) > 0) as hits,
		(select count(*) from unnest($7::text[]) as gram where strpos(texts.lower, gram) > 0) as grams
		from words, recent, lateral (select lower(question || ' ' || coalesce(answer, '')) offset 0) as texts
		order by hits desc, created_at desc limit $6),
	indexed as materialized (select *, to_tsvector('english', regexp_replace(question || ' ' || coalesce(answer, ''), {undivided}, ' ', 'g')) as told, max(grams) over () as most from likely where hits > 0)
	select turn_id, question, coalesce(answer, '') from indexed, words where told @@ asked or grams > 0 and 2 * grams >= most
	order by coalesce(ts_rank(told, asked), 0) + 0.1 * grams / greatest(cardinality($7::text[]), 1) desc, created_at desc limit $4`

func texts() statements {
	return statements{
		begin: `begin; set local synchronous_commit = off; set local idle_in_transaction_session_timeout = '15s'; ` + byIndex,
		// LOCK takes no snapshot: what the transaction sees begins after it, in one generation.
		read: `begin isolation level repeatable read read only; lock table {s}.projection_checkpoints in access share mode; ` + byIndex,

		claim: `insert into {s}.projection_checkpoints as c (projection, partition, seq, event_id, epoch) values ($1, $2, 0, '', 1)
			on conflict (projection, partition) do update set epoch = c.epoch + 1
			returning stream_created_ns, seq, event_id, epoch,
				(select store from {s}.generation), (select number from {s}.generation)`,
		fence: `update {s}.projection_checkpoints set stream_created_ns = $5, seq = $6, event_id = $7, applied_at = now()
			where projection = $1 and partition = $2 and seq = $3 and epoch = $4`,
		formerLetters: `select partition, seq, event_id, type, session_id, reason, attempts,
				parked_at, dropped_at, dropped_by, drop_reason
			from {s}.dead_letters where projection = $1 and partition = $2 order by seq`,
		forgetLetter: `delete from {s}.dead_letters where projection = $1 and partition = $2 and seq = $3`,
		wentOn: `select exists (select from {s}.event_ledger
			where partition = $1 and session_id = $2 and seq > $3)`,
		lock:            `select seq from {s}.projection_checkpoints where projection = $1 and partition = $2 for update`,
		clearLedgerOf:   `delete from {s}.event_ledger where partition = $1 and seq = any($2)`,
		clearSecurityOf: `delete from {s}.security_events where partition = $1 and seq = any($2)`,
		applied:         `select seq from {s}.projection_checkpoints where projection = $1 and partition = $2`,

		checkpoints: `select partition, stream_created_ns, seq, event_id, epoch from {s}.projection_checkpoints where projection = $1 order by partition`,
		generation:  `select store, number from {s}.generation`,
		gate:        `lock table {s}.projection_checkpoints in access exclusive mode`,
		share:       `lock table {s}.projection_checkpoints in access share mode`,
		fenceBefore: `update {s}.projection_checkpoints set epoch = epoch + 1 where projection = $1 and partition = $2 and seq < $3`,
		fenceAll:    `update {s}.projection_checkpoints set epoch = epoch + 1 where projection = $1`,

		forgetAnswers:   `delete from {s}.answers a using {s}.questions q where q.session_id = any($1) and a.turn_id = q.turn_id`,
		forgetQuestions: `delete from {s}.questions where session_id = any($1)`,
		forgetSessions: `delete from {s}.event_ledger l using unnest($3::text[], $4::bigint[]) as gone (session_id, link)
			where l.partition = $1 and l.seq <= $2 and l.session_id = gone.session_id and l.seq <> gone.link`,
		forgetRedacted: `with gone as materialized (select * from unnest($3::text[], $4::uuid[]) as g (session_id, turn_id))
			delete from {s}.event_ledger l where l.partition = $1 and l.seq <= $2 and l.session_id = any($3)
			and ((l.session_id, l.turn_id) in (select * from gone) or (l.session_id, l.replaces_turn_id) in (select * from gone))`,
		stand:         `select turn_id from {s}.questions where turn_id = any($1)`,
		clearLedger:   `delete from {s}.event_ledger where partition = $1 and seq > $2 and seq <= $3`,
		clearSecurity: `delete from {s}.security_events where partition = $1 and seq > $2 and seq <= $3`,

		copyLedger:    `copy {s}.event_ledger ({ledger}) from stdin binary`,
		copySecurity:  `copy {s}.security_events ({security}) from stdin binary`,
		copyQuestions: `copy {s}.questions ({question}) from stdin binary`,
		copyAnswers:   `copy {s}.answers ({answer}) from stdin binary`,
		mergeQuestions: `insert into {s}.questions ({question}) select * from {question rows}
			on conflict (turn_id) do update set {set question}`,
		mergeAnswers: `insert into {s}.answers ({answer}) select * from {answer rows}
			on conflict (turn_id) do update set {set answer}`,
		replace: `update {s}.questions q set replaced_by_turn_id = r.by
			from unnest($1::uuid[], $2::uuid[]) as r (turn_id, by) where q.turn_id = r.turn_id`,
		mergeSessions: `insert into {s}.sessions ({session}) select * from {session rows}
			on conflict (session_id) do update set {set session}`,
		moveSessions: `update {s}.sessions s set {move session} from {activity rows} where s.session_id = r.session_id`,
		link: `insert into {s}.session_links ({link}) select * from {link rows}
			on conflict (session_id) do update set {set link}`,

		head: `select {session}, c.seq from {s}.sessions s join {s}.projection_checkpoints c using (partition)
			where s.session_id = $1 and c.projection = $2`,
		cut: `select q.place from {s}.questions q join {s}.answers a using (turn_id)
			where q.session_id = $1 and q.place > $2 and q.deleted_at is null and q.replaced_by_turn_id is null
			order by q.place desc, q.record_version desc offset $3 limit 1`,
		sessionTurns: `select {turn} from {s}.turns where session_id = $1 and place >= $2 order by place, record_version`,
		// Turns of a partition stand in the order of the log, also where its clock went back: at is the latest time until then.
		identityTurns: `select {turn}, at from (
				select turn_id as listed, at from (
					select turn_id, partition, place, record_version, created_at, created_ns, deleted_at, replaced_by_turn_id,
						max(created_at) over (partition by partition order by place, record_version) as at
					from {s}.questions where identity_id = $1) q
				where deleted_at is null and replaced_by_turn_id is null
				and (at, partition, place, record_version) < ($2, $3, $4, $5)
				and (created_at, created_ns) >= ($6, $7) and (created_at, created_ns) < ($8, $9)
				order by at desc, partition desc, place desc, record_version desc limit $10) page
			join {s}.turns on turn_id = listed
			order by at, partition, place, record_version`,
		recall: recallTurnsByWords,
	}
}

func (s *statements) all() []*string {
	return []*string{
		&s.begin, &s.read, &s.claim, &s.fence, &s.applied,
		&s.formerLetters, &s.forgetLetter, &s.lock, &s.wentOn, &s.clearLedgerOf, &s.clearSecurityOf,
		&s.forgetAnswers, &s.forgetQuestions, &s.forgetSessions, &s.forgetRedacted, &s.stand,
		&s.checkpoints, &s.generation, &s.gate, &s.share, &s.fenceAll, &s.fenceBefore,
		&s.clearLedger, &s.clearSecurity,
		&s.copyLedger, &s.copySecurity, &s.copyQuestions, &s.copyAnswers, &s.mergeQuestions, &s.mergeAnswers, &s.replace, &s.mergeSessions, &s.moveSessions, &s.link, &s.head, &s.cut, &s.sessionTurns, &s.identityTurns, &s.recall,
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

// rows gives, as r, the rows whose columns are the statement's parameters.
func (c columns) rows() string {
	arrays := c.list(func(i int) string { return "$" + strconv.Itoa(i+1) + "::" + c[i].typ + "[]" })
	return "unnest(" + arrays + ") as r (" + c.names() + ")"
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
