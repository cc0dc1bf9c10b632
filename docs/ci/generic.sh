#!/usr/bin/env bash
# A gate in any CI: generic.sh HOST NAME[@VERSION]. See docs/gate.md.
#
# From the CI's secrets, in the environment:
#   GATE_SSH_KEY      the private key that the host accepts
#   GATE_KNOWN_HOSTS  the host's line(s) of known_hosts
# In the working directory: inventory.yaml, the patch sets and gate.yaml, the policy (opsctl gate
# --show-policy > gate.yaml). Left there: gate.xml (JUnit), gate.html and gate.json. It ends with opsctl's own exit status.
set -euo pipefail

if [ $# -ne 2 ]; then
    echo "usage: $0 HOST NAME[@VERSION]" >&2
    exit 2
fi
: "${GATE_SSH_KEY:?the private key that the host accepts}"
: "${GATE_KNOWN_HOSTS:?the lines of known_hosts of the host}"

gate='' cancelled=''
# shellcheck disable=SC2317 # the trap calls it
stop() {
    cancelled=1
    [ -z "$gate" ] || kill -TERM "$gate" 2>/dev/null || true
}
trap 'ssh-agent -k >/dev/null 2>&1 || true' EXIT
# The shell hears a cancelled job's signal and passes it on; opsctl restores. As SIGTERM each
# time: a shell without job control starts what it does not wait for with SIGINT ignored.
trap stop INT TERM HUP

umask 077
mkdir -p ~/.ssh
# The key is in the agent alone: nothing is left on a machine that other jobs share.
eval "$(ssh-agent -s)" >/dev/null
printf '%s\n' "$GATE_SSH_KEY" | ssh-add -q -
touch ~/.ssh/known_hosts
while IFS= read -r line; do
    grep -qxF -- "$line" ~/.ssh/known_hosts || printf '%s\n' "$line" >>~/.ssh/known_hosts
done <<<"$GATE_KNOWN_HOSTS"
unset GATE_SSH_KEY GATE_KNOWN_HOSTS

umask 022
opsctl gate "$1" --set "$2" --policy gate.yaml --yes --why "${CI_JOB_URL:-${BUILD_URL:-CI}}" \
    --junit gate.xml --html gate.html --json >gate.json &
gate=$!
[ -z "$cancelled" ] || stop
# A signal ends `wait` and not opsctl, which may take minutes to restore; once it is gone, `wait`
# says how it ended.
while kill -0 "$gate" 2>/dev/null; do
    wait "$gate" || true
done
code=0
wait "$gate" || code=$?
exit "$code"
