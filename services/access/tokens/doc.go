// Package tokens authenticates callers of the HTTP API by the JSON Web Tokens of an OpenID Connect issuer. Form,
// algorithm, signature, issuer and audience are checked by go-oidc; this package keeps the issuer's keys, checks times
// with some leeway for clocks that differ, and reads from the claims whose token it is. A token is an end user's, bound
// to its identity, unless its subject is named as a service's.
package tokens
