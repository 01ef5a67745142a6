package export

import (
	"archive/zip"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
)

// People implements services.PersonalData.
type People struct {
	Events   services.EventReader
	Sessions services.SessionReader
	Receipts services.ReceiptReader
}

var _ services.PersonalData = People{}

// withdrawing are the types of events that take something back that an archive may have.
var withdrawing = []string{
	events.TypeTurnRedacted, events.TypeTurnCorrected, events.TypeTurnPruned, events.TypeSessionErased,
	events.TypeIdentityErased, events.TypeSessionSummarized, events.TypeSessionDescribed,
}

// Archive implements services.PersonalData. What it reads it keeps in a file without a name until all is read, so that
// what is withdrawn meanwhile is not sent.
func (p People) Archive(ctx context.Context, identityID string, w io.Writer) (err error) {
	spool, err := os.CreateTemp("", "turnledger-person-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, spool.Close()) }()
	if err := os.Remove(spool.Name()); err != nil {
		return err
	}
	a := &archive{
		People: p, identity: identityID, spool: spool, sessions: map[string]*archived{}, names: map[string]string{},
		attempts: []attempt{},
	}
	changed, at, err := a.look(ctx, events.Cursor{}, nil)
	for err == nil && len(changed) > 0 {
		for _, id := range slices.Sorted(maps.Keys(changed)) {
			if err := a.read(ctx, id, positions(at)); err != nil {
				return err
			}
		}
		var withdrawn map[string]bool
		if withdrawn, at, err = a.look(ctx, at, withdrawing); err == nil {
			changed = a.touched(withdrawn)
		}
	}
	if err != nil {
		return err
	}
	receipts, err := a.receipts(ctx)
	if err != nil {
		return err
	}
	return a.send(w, receipts, at)
}

// archive is what is known of a person.
type archive struct {
	People

	identity string
	spool    *os.File
	end      int64
	// sessions are those that were linked to the identity at any time; names are the files of each.
	sessions map[string]*archived
	names    map[string]string
	attempts []attempt
}

// archived is what an archive has of a session; nothing of one that is not the person's, or was erased.
type archived struct {
	file     string
	json, md section
	turns    []remembered // those of its own that are answered; own is how many it has
	own      int
	shows    []string // the sessions whose turns it shows
}

// section is a part of the spool.
type section struct{ at, size int64 }

type remembered struct {
	SessionID string `json:"session_id"`
	TurnID    string `json:"turn_id"`
}

// attempt is one to link a session of the person to somebody else, who is not named.
type attempt struct {
	SessionID string    `json:"session_id"`
	At        time.Time `json:"at"`
	Position  string    `json:"position"`
}

// look reads the identity's events behind a position, and returns the sessions that they are of. An event of the
// identity itself is of all.
func (a *archive) look(
	ctx context.Context, from events.Cursor, types []string,
) (of map[string]bool, at events.Cursor, err error) {
	stream, err := a.Events.OpenEvents(ctx, services.EventQuery{
		IdentityID: a.identity, Own: services.WithOwn, From: positions(from), Types: types,
	})
	if err != nil {
		return nil, nil, err
	}
	defer stream.Close()
	of = map[string]bool{}
	for {
		batch, err := stream.Next(ctx)
		for _, e := range batch {
			var is struct {
				Type, Subject string
				RecordedAt    time.Time
			}
			if err := json.Unmarshal(e.JSON, &is); err != nil {
				return nil, nil, err
			}
			switch is.Type {
			case events.TypeIdentityErased:
				for id := range a.sessions {
					of[id] = true
				}
			case events.TypeErasureReceipt: // is of an erasure, which stands before it
			case events.TypeLinkRefused:
				a.attempts = append(a.attempts, attempt{is.Subject, is.RecordedAt, e.Position.String()})
			default:
				of[is.Subject] = true
			}
		}
		if errors.Is(err, io.EOF) {
			return of, stream.Position(), nil
		}
		if err != nil {
			return nil, nil, err
		}
	}
}

func positions(c events.Cursor) (list []events.Position) {
	for partition, seq := range c {
		if seq > 0 {
			list = append(list, events.Position{Partition: partition, Seq: seq})
		}
	}
	return list
}

// touched returns the sessions of the archive that show turns of others.
func (a *archive) touched(by map[string]bool) map[string]bool {
	out := maps.Clone(by)
	for id, s := range a.sessions {
		if slices.ContainsFunc(s.shows, func(of string) bool { return by[of] }) {
			out[id] = true
		}
	}
	return out
}

// read puts a session into the archive as it is now.
func (a *archive) read(ctx context.Context, id string, least []events.Position) error {
	reading, err := a.Sessions.Read(ctx, services.Ask{SessionID: id, AllTurns: true, MinPosition: least})
	if err != nil {
		return err
	}
	kept := &archived{}
	a.sessions[id] = kept
	state := reading.State
	if state.Erased != 0 || !state.Found() || state.Identity != a.identity {
		return nil
	}
	shown := newPersonSession(state, reading.Position.Partition)
	kept.file, kept.shows = a.fileOf(id), shown.origins
	for _, t := range shown.Turns {
		if t.Inherited {
			continue
		}
		kept.own++
		if t.Status == session.Finalized.String() {
			kept.turns = append(kept.turns, remembered{t.SessionID, t.TurnID})
		}
	}
	raw, err := json.MarshalIndent(shown, "", "  ")
	if err != nil {
		return err
	}
	if kept.json, err = a.keep(append(raw, '\n')); err == nil {
		kept.md, err = a.keep(shown.markdown())
	}
	return err
}

func (a *archive) keep(raw []byte) (section, error) {
	s := section{a.end, int64(len(raw))}
	_, err := a.spool.WriteAt(raw, s.at)
	a.end += s.size
	return s, err
}

// longestName leaves room for what a name ends with.
const longestName = 150

// fileOf returns the name of a session's files. No two differ in their letters' case alone: there are file systems to
// which these are one.
func (a *archive) fileOf(id string) string {
	name := url.PathEscape(id)
	if owner, taken := a.names[strings.ToLower(name)]; len(name) > longestName || taken && owner != id {
		sum := sha256.Sum256([]byte(id))
		name = name[:min(len(name), longestName)] + "~" + hex.EncodeToString(sum[:8])
	}
	a.names[strings.ToLower(name)] = id
	return name
}

// personReceipt is how far an erasure is.
type personReceipt struct {
	ID          string          `json:"receipt_id"`
	SessionID   string          `json:"session_id,omitempty"`
	TurnID      string          `json:"turn_id,omitempty"`
	Position    events.Position `json:"position"`
	RequestedAt time.Time       `json:"requested_at"`
	Reason      string          `json:"reason,omitempty"`
	Complete    bool            `json:"complete"`
	Places      []personPlace   `json:"places"`
}

type personPlace struct {
	Place string    `json:"place"`
	Done  bool      `json:"done"`
	At    time.Time `json:"at,omitzero"`
}

// receiptsAtOnce is how many receipts a page has.
const receiptsAtOnce = 200

// receipts returns those of the identity, of its sessions, and of their turns.
func (a *archive) receipts(ctx context.Context) ([]personReceipt, error) {
	out := []personReceipt{}
	for cursor := ""; ; {
		page, err := a.Receipts.Receipts(ctx, services.ReceiptsAsk{Limit: receiptsAtOnce, Cursor: cursor})
		if err != nil {
			return nil, err
		}
		for _, r := range page.Receipts {
			if r.IdentityID != a.identity && r.Owner != a.identity && a.sessions[r.SessionID] == nil {
				continue
			}
			own := personReceipt{
				ID: r.ID, SessionID: r.SessionID, TurnID: r.TurnID, Position: r.Position, RequestedAt: r.RequestedAt,
				Reason: r.Reason, Complete: r.Complete(), Places: []personPlace{},
			}
			for _, p := range r.Places {
				own.Places = append(own.Places, personPlace{p.Place, p.Done, p.At})
			}
			out = append(out, own)
		}
		if cursor = page.NextCursor; cursor == "" {
			return out, nil
		}
	}
}

// personManifest counts what an archive has.
type personManifest struct {
	IdentityID   string            `json:"identity_id"`
	Position     string            `json:"position"`
	Sessions     int               `json:"sessions"`
	Turns        int               `json:"turns"`
	LinkAttempts int               `json:"link_attempts"`
	Receipts     int               `json:"receipts"`
	Files        map[string]string `json:"files"`
}

// send writes the archive.
func (a *archive) send(w io.Writer, receipts []personReceipt, at events.Cursor) error {
	out := zip.NewWriter(w)
	m := personManifest{
		IdentityID: a.identity, Position: at.String(), LinkAttempts: len(a.attempts),
		Receipts: len(receipts), Files: map[string]string{},
	}
	memory := []remembered{}
	for _, id := range slices.Sorted(maps.Keys(a.sessions)) {
		s := a.sessions[id]
		if s.file == "" {
			continue
		}
		m.Sessions, m.Turns, m.Files[s.file] = m.Sessions+1, m.Turns+s.own, id
		memory = append(memory, s.turns...)
		for ending, part := range map[string]section{".json": s.json, ".md": s.md} {
			f, err := out.Create("sessions/" + s.file + ending)
			if err == nil {
				_, err = io.Copy(f, io.NewSectionReader(a.spool, part.at, part.size))
			}
			if err != nil {
				return err
			}
		}
	}
	f, err := out.Create("README.md")
	if err == nil {
		_, err = fmt.Fprintf(f, personReadme, m.Sessions, m.Turns, m.Receipts)
	}
	if err != nil {
		return err
	}
	for _, list := range []struct {
		name string
		of   any
	}{
		{"link-attempts.json", a.attempts}, {"memory.json", memory}, {"receipts.json", receipts}, {"manifest.json", m},
	} {
		f, err := out.Create(list.name)
		if err == nil {
			e := json.NewEncoder(f)
			e.SetIndent("", "  ")
			err = e.Encode(list.of)
		}
		if err != nil {
			return err
		}
	}
	return out.Close()
}

const personReadme = `# Your data

%d conversations with %d questions, and %d receipts of what was erased.

- sessions/: each conversation, to read (.md) and for programs (.json)
- memory.json: the answered questions that long-term memory is made of; it keeps nothing else
- link-attempts.json: when somebody tried to take one of these conversations as theirs, in vain
- receipts.json: what was erased of yours, and how far that is
- manifest.json: how much there is of everything, which file is which conversation, and as of which position of the log

What was erased is not in it, nor what others wrote, nor the instructions that operators gave to a model.
`

// personSession is a session as its owner gets it: the visible turns, without the instructions of operators.
type personSession struct {
	SessionID    string          `json:"session_id"`
	Title        string          `json:"title,omitempty"`
	Metadata     json.RawMessage `json:"metadata,omitempty"`
	CreatedAt    time.Time       `json:"created_at"`
	LastActiveAt time.Time       `json:"last_active_at"`
	ForkedFrom   *remembered     `json:"forked_from,omitempty"`
	Turns        []TurnRow       `json:"turns"`
	Summaries    []personSummary `json:"summaries"`

	origins []string
}

type personSummary struct {
	FromTurnID        string `json:"from_turn_id"`
	ThroughTurnID     string `json:"through_turn_id"`
	SummaryNeutral    string `json:"summary_neutral"`
	SummaryTranslated string `json:"summary_translated,omitempty"`
}

func newPersonSession(s *session.State, partition int) *personSession {
	described := s.Description()
	out := &personSession{
		SessionID: s.SessionID, Title: described.Title, Metadata: json.RawMessage(described.Metadata),
		CreatedAt: s.CreatedAt, LastActiveAt: s.LastActive, Turns: []TurnRow{}, Summaries: []personSummary{},
	}
	for _, g := range s.Fork().Segments() {
		out.origins = append(out.origins, g.SessionID)
		out.ForkedFrom = &remembered{g.SessionID, g.ThroughTurnID.String()}
	}
	for _, t := range s.Turns {
		if t.Status == session.Pending || t.Status == session.Finalized {
			row := newTurnRow(s, t, partition)
			row.QuestionMessages = spoken(row.QuestionMessages)
			row.AnswerMessages = spoken(row.AnswerMessages)
			out.Turns = append(out.Turns, row)
		}
	}
	for _, m := range s.Standing() {
		if m.Fact != nil {
			out.Summaries = append(out.Summaries, personSummary{
				m.From.String(), m.Through.String(), m.Fact.SummaryNeutral, m.Fact.SummaryTranslated,
			})
		}
	}
	return out
}

// spoken leaves out the messages that operators give to a model.
func spoken(list json.RawMessage) json.RawMessage {
	var all, kept []json.RawMessage
	if json.Unmarshal(list, &all) != nil {
		return list
	}
	for _, raw := range all {
		var is struct{ Role, Type string }
		_ = json.Unmarshal(raw, &is) // what is no object has neither
		if is.Role != message.System && is.Role != message.Developer && is.Type != "mcp_list_tools" {
			kept = append(kept, raw)
		}
	}
	if kept == nil {
		return nil
	}
	out, _ := json.Marshal(kept) // what was read can be written
	return out
}

// markdown returns the session to read. What was said is quoted.
func (s *personSession) markdown() []byte {
	var out strings.Builder
	fmt.Fprintf(&out, "# %s\n", oneLine(cmp.Or(s.Title, s.SessionID)))
	if s.ForkedFrom != nil {
		fmt.Fprintf(&out, "\nA branch of %s, whose turns it begins with.\n", oneLine(s.ForkedFrom.SessionID))
	}
	say := func(who string, texts ...*string) {
		for _, text := range texts {
			if text != nil && *text != "" {
				fmt.Fprintf(&out, "\n%s\n\n> %s\n", who, strings.Join(strings.Split(*text, "\n"), "\n> "))
			}
		}
	}
	for _, t := range s.Turns {
		fmt.Fprintf(&out, "\n## %s\n", t.CreatedAt.UTC().Format(time.DateTime))
		say("Question:", t.QuestionNeutral, t.QuestionTranslated)
		say("Answer:", t.AnswerNeutral, t.AnswerTranslated)
	}
	for _, m := range s.Summaries {
		say("Summary:", &m.SummaryNeutral, &m.SummaryTranslated)
	}
	return []byte(out.String())
}

// oneLine takes line ends and other control characters out of a text.
func oneLine(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }), " ")
}
