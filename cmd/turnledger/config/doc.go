// Package config reads the settings of a process: flags, environment variables and the files that hold secrets
// (docs/settings.md). Each setting is written once, as a field with its tags; every list of settings is made from
// kong's model of these fields. The package starts and opens nothing but the files of certificates.
package config
