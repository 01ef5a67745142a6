package importer

// KeyOf returns what request ids know of a message.
func KeyOf(id string) string { return (&node{id: id}).key() }
