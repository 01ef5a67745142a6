package contextbuilder

// TokenCounter counts the tokens of a text as a model does. Safe for concurrent use.
type TokenCounter interface{ Count(text string) int }

// Estimate of tokens where the model's tokenizer is unknown: a quarter of the bytes, as
// in English; in other scripts it is more than there are.
type Estimate struct{}

// Count implements TokenCounter.
func (Estimate) Count(text string) int { return (len(text) + 3) / 4 }

// perMessage is what a message costs beside its texts: its role and its borders
// (OpenAI's cookbook, "How to count tokens with tiktoken").
const perMessage = 4

// tokensOf counts what a model reads of messages: texts and tool calls. Images are not
// counted, since what they cost is the vendor's to say.
func tokensOf(messages []Message, count func(string) int) int {
	n := 0
	for _, m := range messages {
		n += perMessage + count(plainText(m))
		for _, c := range m.toolCalls() {
			n += perMessage + count(c.Function.Name) + count(string(c.Function.Arguments))
		}
	}
	return n
}
