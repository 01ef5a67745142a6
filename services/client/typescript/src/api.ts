// Made by `npm run types` from the API's /openapi.json: do not edit.

export interface AsOfBody {
  /** Inclusive */
  position?: string;
  time?: string;
}

export interface Chat {
  content: string;
  /** The same request was answered before; that answer stands */
  duplicate: boolean;
  /** Why the answer ended: stop where it is whole; length, content_filter, interrupted or stopped where it was
   * cut by the model's limit of tokens, its filter, a later message, or by a stop; null where there is none */
  finish_reason: string | null;
  history_turns: number;
  /** A later message ended the answer */
  interrupted: boolean;
  model: string;
  position: string | null;
  request_id: string | null;
  rewritten_query: string | null;
  role: "assistant";
  /** Of the turn */
  status: string | null;
  thread_id: string;
  /** null for a message of the system */
  turn_id: string | null;
}

export interface ChatBody {
  /** What the user says; left out with regenerates_turn_id */
  content?: string;
  /** The message takes the place of that turn's question, in a branch that begins right before it */
  edits_turn_id?: string;
  /** Only turns since the last silence that long */
  idle_timeout?: string;
  language?: "neutral" | "translated";
  /** Of history; 20 by default */
  max_messages?: number;
  /** Of history, counted as the configured model counts them */
  max_tokens?: number;
  memory?: boolean;
  /** What to do while another message is being answered; enqueue by default */
  on_pending?: "reject" | "enqueue" | "interrupt";
  /** That turn's question is asked again, in a branch that begins right before it */
  regenerates_turn_id?: string;
  /** Makes sending again safe; made up where it is missing */
  request_id?: string;
  rewrite?: boolean;
  system_prompt?: string;
  /** The session; of the path, where that has one */
  thread_id?: string;
  /** The identity that speaks; system is answered, but neither reads nor leaves history */
  user_id?: string;
}

export interface Context {
  /** Turns that the window left out */
  dropped_turns: number;
  /** Messages taken from history */
  history_messages: number;
  /** The turns of the history, oldest first */
  history_turn_ids: Array<string>;
  history_turns: number;
  memory_snippet: string | null;
  /** System prompt, memory, history oldest first, the current message */
  messages: Array<Record<string, unknown>>;
  /** null where the history came with the request; of a branch, of all partitions that were read */
  position: string | null;
  rewrite_fallback: boolean;
  rewritten_query: string | null;
  session_found: boolean;
  source: "view" | "view+log" | "log" | "request";
  /** Of turns that the window left out */
  summary: {
    summary_id: string;
    through_turn_id: string;
    /** How many turns it covers */
    turns: number;
  } | null;
  /** In the anthropic form only */
  system?: string;
  warnings: Array<string>;
}

export interface ContextBody {
  /** What history would have been sent then, today's redactions applied */
  as_of?: AsOfBody;
  /** The client's own list of role and content instead of the stored history; what is malformed is dropped */
  conversation_history?: Array<unknown> | null;
  format?: "openai" | "anthropic";
  identity_id?: string;
  /** Only turns since the last silence that long, such as 30m; off for none */
  idle_timeout?: string;
  /** Questions without an answer, too */
  include_pending?: boolean;
  language?: "neutral" | "translated";
  /** Of history; 20 by default, at least 2, clamped to 100,000 */
  max_messages?: number;
  /** Of history, counted as the configured model counts them */
  max_tokens?: number;
  memory?: boolean;
  /** The current user message */
  message: string;
  rewrite?: boolean;
  /** A summary in the place of turns that the window leaves out */
  summary?: boolean;
  system_prompt?: string;
  /** The turn being answered: it is left out, and history goes up to its start */
  turn_id?: string;
}

export interface CorrectBody {
  answer_neutral?: string;
  answer_translated?: string;
  question_neutral?: string;
  question_translated?: string;
  /** A new one, not that of a start; required here or as Idempotency-Key */
  request_id?: string;
}

export interface CurrentVersion {
  record_version: number;
  turn_id: string;
}

export interface DescribeBody {
  /** Makes the session a conversation for ever: no silence is a boundary in it, and a retention of its own
   * holds for it */
  kind?: "conversation";
  /** Laid over the session's; null takes a key away */
  metadata?: Record<string, string | null>;
  /** The same request again changes nothing */
  request_id?: string;
  /** At most 200 characters; null takes it away */
  title?: string | null;
}

export interface EraseBody {
  /** Kept in the log for ever: no text of a turn */
  reason?: string;
  /** Who asked; kept in the log for ever */
  redacted_by?: string;
}

export interface Erased {
  /** GET /v1/receipts/{id} tells what the erasure has reached */
  receipt_id: string;
}

export interface FinalizeBody {
  /** Chat messages in the OpenAI form; what prompts show of the answer */
  answer_messages?: Array<Record<string, unknown>> | null;
  /** Required, unless answer_messages holds a message */
  answer_neutral?: string;
  answer_translated?: string;
  answer_translated_is_fallback?: boolean;
  /** Laid over the metadata of the start */
  metadata?: Record<string, unknown> | null;
  /** For development: with TURNLEDGER_FINALIZE_WITHOUT_START and a request_id, a turn that was never started
   * is started with it; else it has no effect */
  question_neutral?: string;
  /** Checked against the turn, where it is sent */
  request_id?: string;
}

export interface ForkBody {
  /** The branch begins with the turns right before this one; both left out: up to the last finalized one */
  before_turn_id?: string;
  /** The same one again gives the same branch, for ever; required here or as Idempotency-Key */
  request_id?: string;
  /** The branch; left out: computed from session and request */
  session_id?: string;
  /** The branch begins with the turns up to and with this one */
  turn_id?: string;
}

export interface History {
  /** Oldest first */
  history: Array<Pair>;
}

export interface Hit {
  created_at: string;
  /** The one that matches better */
  half: "question" | "answer";
  /** null: of an anonymous session */
  identity_id: string | null;
  /** Of the turn's start */
  position: string;
  /** Between 0 and 1: with words, of the query and the text alone; with meaning, the cosine; with hybrid, of
   * the ranks in both */
  score: number;
  session_id: string;
  /** The text around the match, at most 200 characters */
  snippet: string;
  turn_id: string;
}

export interface LastTurn {
  /** The first 200 characters */
  answer_neutral: string | null;
  /** The first 200 characters */
  question_neutral: string;
  status: "pending" | "finalized";
  turn_id: string;
}

export interface Line {
  /** Of a problem */
  code?: string;
  detail?: string;
  dropped_metadata?: Array<string> | null;
  duplicate?: boolean;
  /** What the single call would have answered */
  http_status: number;
  /** Its number in the request's body, from 1 on */
  line: number;
  position?: string;
  /** Seconds until the line may come again */
  retry_after?: number;
  turn_id?: string;
}

export interface LineBody {
  /** The session of the turn */
  session_id: string | null;
}

export interface LinkBody {
  /** 1 to 256 bytes, as for all ids */
  identity_id: string;
}

export interface Listed {
  /** Null where there is none, and for an anonymous session that has left the recent view */
  last_turn: LastTurn;
}

export interface Pair {
  answer_neutral: string;
  question_neutral: string;
}

export interface Problem {
  /** Stable; what programs go by */
  code: string;
  /** With turn_replaced: the version that stands */
  current?: CurrentVersion;
  /** What is wrong, and what to do */
  detail: string;
  /** The fields that are wrong */
  errors?: Array<ProblemField> | null;
  /** With turn_inherited: where the turn is written to */
  origin?: TurnOrigin;
  status: number;
  /** What kind of problem it is; the same for each code */
  title: string;
  /** urn:turnledger:problem: and the code */
  type: string;
}

export interface ProblemField {
  /** What is wrong with it, never its value */
  detail: string;
  field: string;
}

export interface Progress {
  erased: number;
  /** At the rate so far */
  eta_seconds: number | null;
  /** To erase in all; of an identity it is not known */
  events?: number;
  sessions?: number;
  sessions_done?: number;
}

export interface Receipt {
  /** Branches that lost turns which they shared; null of a turn */
  branches: number | null;
  completed_at: string | null;
  identity_id: string | null;
  kind: "session" | "identity" | "turn";
  places: Array<ReceiptPlace>;
  /** Of the event that asks for the erasure */
  position: string;
  /** While it runs, once it has begun */
  progress?: Progress;
  receipt_id: string;
  requested_at: string;
  session_id: string | null;
  /** Turns that these branches lost, each counted once */
  shared_turns: number | null;
  state: "running" | "complete";
  turn_id: string | null;
}

export interface ReceiptPlace {
  /** Events, of the log; turns of a session, or sessions of an identity, of a view */
  erased: number | null;
  /** When that was written down */
  erased_at: string | null;
  /** log, or the name of a view */
  place: string;
  state: "waiting" | "done";
  /** Why it is not proved that a text is gone, and what an operator must do */
  why?: string;
}

export interface ResetBody {
  /** Kept in the log */
  reason?: string;
}

export interface Search {
  /** The best first; with words, among the newest 200 matching turns, then among the 200 before them, and so
   * on */
  hits: Array<Hit>;
  /** How many events of the log the index has not applied yet; 0 with words */
  lag_events: number;
  mode: "words" | "meaning" | "hybrid";
  /** For the next page, which may be empty; null at the end */
  next_cursor: string | null;
  /** One of each partition: what was searched */
  position: string;
}

export interface SearchQuery {
  /** next_cursor of the page before */
  cursor?: string;
  /** Turns of its sessions; left out: all, which needs events:read */
  identity_id?: string;
  /** both by default */
  in?: "question" | "answer" | "both";
  /** Both if left out */
  language?: "neutral" | "translated";
  /** At most so many hits; 10 by default, clamped to 100 */
  limit?: number;
  /** Hits with at least that score */
  min_score?: number;
  /** words: exact; meaning: nearest first; hybrid: both, fused by rank. Left out: hybrid where the index
   * answers, else words */
  mode?: "words" | "meaning" | "hybrid";
  /** Words, of which all must be in one half of a turn, phrases in quotation marks, -word leaves out; or a
   * question, with meaning */
  query: string;
  /** Turns of this session */
  session_id?: string;
  /** Turns that started at or after that time */
  since?: string;
  /** Turns that started before that time */
  until?: string;
}

export interface Session {
  created_at: string | null;
  /** The branch that the session's chat goes on in (/v1/ui); null where that is the session */
  current_branch: string | null;
  /** In answers to writes: the log had it already */
  duplicate?: boolean;
  /** Of a branch; null of any other session */
  forked_from: {
    /** The session of the last shared turn */
    session_id: string;
    /** The last shared turn; null where none is shared */
    turn_id: string | null;
  } | null;
  /** The log knows the session, and it was not erased */
  found: boolean;
  identity_id: string | null;
  last_active_at: string | null;
  metadata: Record<string, unknown> | null;
  /** Turns without an answer */
  pending: number;
  /** Of a branch, of all partitions that were read */
  position: string;
  session_id: string;
  title: string | null;
  /** Turns with and without an answer; redacted ones are none */
  turns: number;
}

export interface SessionsQuery {
  /** next_cursor of the page before */
  cursor?: string;
  /** Sessions that are linked to it; left out: all, which needs events:read */
  identity_id?: string;
  /** At most so many sessions; 50 by default, clamped to 200 */
  limit?: number;
  /** Members that the session's metadata has */
  metadata?: Record<string, string>;
  /** Sessions that were active at or after that time */
  since?: string;
  /** A part of the title, in any case */
  title?: string;
  /** Sessions that were last active before that time */
  until?: string;
}

export interface StartBody {
  /** Chat messages in the OpenAI form; what prompts show of the answer */
  answer_messages?: Array<Record<string, unknown>> | null;
  /** With an answer the turn is recorded whole, by the rules of finalize; metadata is that of the start */
  answer_neutral?: string;
  answer_translated?: string;
  answer_translated_is_fallback?: boolean;
  consultant?: string;
  /** Links the session; 409 if it belongs to another */
  identity_id?: string;
  /** Keys that are not on the allowlist are not kept */
  metadata?: Record<string, unknown> | null;
  pipeline_name?: string;
  /** Chat messages in the OpenAI form; what prompts show of the question */
  question_messages?: Array<Record<string, unknown>> | null;
  /** Required, unless question_translated is there, or question_messages with something without text */
  question_neutral?: string;
  question_translated?: string;
  repository?: string;
  /** The same one again gives the same turn, for ever; required here or as Idempotency-Key */
  request_id?: string;
  /** The answer is wanted translated, too */
  translate_chat?: boolean;
}

export interface Stopped {
  thread_id: string;
  /** Whose answer ends; null where none was being made */
  turn_id: string | null;
}

export interface Token {
  expires_at: string;
  /** Shown once; sent as Authorization: Bearer TOKEN */
  token: string;
}

export interface TokenInBody {
  /** Seconds, 1 to 3600 */
  expires_in: number | null;
  /** Whom the token is bound to: it reaches sessions of this identity alone */
  identity_id: string | null;
  /** Of turns:write, context:read and turns:redact, those that it has; none that the caller lacks */
  scopes: Array<string>;
}

export interface Turn {
  answer_messages: Array<Record<string, unknown>> | null;
  answer_neutral: string | null;
  answer_translated: string | null;
  answer_translated_is_fallback: boolean;
  consultant: string | null;
  created_at: string;
  deleted_at: string | null;
  /** Keys that are not on the allowlist and were not kept */
  dropped_metadata: Array<string>;
  /** The log had it already; what came first stands */
  duplicate: boolean;
  finalized_at: string | null;
  identity_id: string | null;
  /** A branch shares the turn: session_id is that of its origin, where it is written to */
  inherited: boolean;
  metadata: Record<string, unknown> | null;
  pipeline_name: string | null;
  /** Place in the log; pass it on as min_position */
  position: string;
  question_messages: Array<Record<string, unknown>> | null;
  question_neutral: string | null;
  question_translated: string | null;
  /** 1 for a first turn, one higher with each correction */
  record_version: number;
  replaced_by_turn_id: string | null;
  repository: string | null;
  request_id: string;
  session_id: string;
  status: "pending" | "finalized" | "redacted" | "replaced";
  translate_chat: boolean;
  turn_id: string;
}

export interface TurnOrigin {
  session_id: string;
  turn_id: string;
}

export interface Turns {
  /** For the next page; null at the end */
  next_cursor: string | null;
  /** Newest last */
  turns: Array<Turn>;
}
