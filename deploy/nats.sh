#!/bin/sh
# Runs a node of docker-compose.yml with its secrets, which are files, in the environment that nats.conf reads. The inner
# quotes keep the server from reading a secret that looks like a number as one.
set -eu
secrets=${SECRETS:-/run/secrets}
password=$(cat "$secrets/nats-password")
route=$(cat "$secrets/nats-route-password")
export NATS_PASSWORD="\"$password\"" NATS_ROUTE_PASSWORD="\"$route\""
export NATS_ROUTE_1="\"nats://route:$route@nats-1:6222\"" NATS_ROUTE_2="\"nats://route:$route@nats-2:6222\"" NATS_ROUTE_3="\"nats://route:$route@nats-3:6222\""
exec nats-server --config /etc/nats/nats.conf
