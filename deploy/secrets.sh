#!/bin/sh
# Makes the secrets that docker-compose.yml hands to its services as files: `sh deploy/secrets.sh` (into ./secrets).
# Existing secrets stay. Only the owner can enter the folder; the files in it can be read by all, since the containers
# run as other users.
set -eu
dir=${1:-secrets}
mkdir -p "$dir"
chmod 700 "$dir"

# put NAME VALUE: a file of one line. Values are letters and digits, since they stand in URLs.
put() {
	if [ ! -e "$dir/$1" ]; then
		(umask 022; printf '%s\n' "$2" >"$dir/$1")
		echo "$dir/$1"
	fi
}
random() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }
value() { cat "$dir/$1"; }

for name in nats-password nats-route-password redis-password postgres-password grafana-password weaviate-key; do
	put "$name" "$(random)"
done
nats="nats://turnledger:$(value nats-password)@"
put nats-url "${nats}nats-1:4222,${nats}nats-2:4222,${nats}nats-3:4222"
put redis-url "redis://:$(value redis-password)@redis:6379/0"
put postgres-url "postgres://turnledger:$(value postgres-password)@postgres:5432/turnledger?sslmode=disable"
