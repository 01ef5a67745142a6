// Package services holds the nouns that all services and all transports share: what a caller asks for, what a service
// answers, the ports between the two, and the errors that a port may return. Services return these types, and
// transports take interfaces of these types, so no mapping code is needed between them.
//
// There is no logic here. The types that a view returns are declared in projections, the parts of a session in
// events/session. A wire form (the JSON of a transport, a client's own types, a stored row) belongs to the package
// that reads and writes it.
package services
