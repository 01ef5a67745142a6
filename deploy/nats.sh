#!/bin/sh
# Runs a node of docker-compose.yml. Its secrets are files; nats.conf reads them from the environment. The inner
# quotes keep the server from taking a secret that looks like a number for a number.
set -eu
secrets=${SECRETS:-/run/secrets}
password=$(cat "$secrets/nats-password")
route=$(cat "$secrets/nats-route-password")
export NATS_PASSWORD="\"$password\"" NATS_ROUTE_PASSWORD="\"$route\""
export NATS_ROUTE_1="\"nats://route:$route@nats-1:6222\""
export NATS_ROUTE_2="\"nats://route:$route@nats-2:6222\""
export NATS_ROUTE_3="\"nats://route:$route@nats-3:6222\""
# What the node had begun to erase when it was killed is overwritten before it starts, and the log is told so.
export TURNLEDGER_NATS_URL="nats://turnledger:$password@127.0.0.1:4222"
exec turnledger scrub "${DATA:-/data}" --report -- nats-server --config /etc/nats/nats.conf
