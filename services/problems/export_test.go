package problems

// Codes returns the codes of problems with their classes.
func Codes() map[string]Class {
	out := map[string]Class{}
	for code, k := range codes {
		out[code] = k.class
	}
	return out
}
