package events

// Zero returns the empty fact of a type of the catalogue.
func Zero(typ string) Fact { return catalogue[typ].zero }
