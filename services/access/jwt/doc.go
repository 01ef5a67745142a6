// Package jwt authenticates callers of the HTTP API by the JSON Web Tokens of an OpenID Connect issuer. Form,
// algorithm, signature, issuer and audience are checked by go-oidc; this package keeps the issuer's keys, checks times
// with some leeway for clocks that differ, and reads the caller from the claims. A token belongs to an end user and is
// bound to the user's identity, unless its subject is configured as a service.
package jwt
