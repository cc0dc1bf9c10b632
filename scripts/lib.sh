# Sourced by scripts/demo and scripts/test: the packages and the environment they need.
# Progress goes to stderr; stdout is for results.

say() { printf '== %s\n' "$*" >&2; }

fail() {
    printf 'error: %s\n' "$1" >&2
    [ -z "${2:-}" ] || printf '  remedy: %s\n' "$2" >&2
    exit 3
}

# As root, or again through sudo with the environment kept.
need_root() {
    [ "$(id -u)" -eq 0 ] && return
    command -v sudo >/dev/null || fail "the lab needs root" "run as root, or install sudo"
    exec sudo -E "PATH=$PATH" "$0" "$@"
}

# The tools of the lab, from Debian's or Ubuntu's packages, only where they are missing.
need_packages() {
    local missing=()
    command -v systemd-nspawn >/dev/null || missing+=(systemd-container)
    command -v debootstrap >/dev/null || missing+=(debootstrap)
    [ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || missing+=(debian-archive-keyring)
    command -v ssh >/dev/null || missing+=(openssh-client)
    "$PYTHON" -c 'import venv, ensurepip' 2>/dev/null || missing+=(python3-venv)
    [ ${#missing[@]} -eq 0 ] && return
    command -v apt-get >/dev/null ||
        fail "missing: ${missing[*]}" "install them with this system's package manager"
    say "installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    { apt-get update -q && apt-get install -y -q --no-install-recommends "${missing[@]}"; } >&2
}

# A Python of 3.11 or newer, the one named in $PYTHON first.
need_python() {
    local candidate
    for candidate in "${PYTHON:-python3}" python3.13 python3.12 python3.11; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            PYTHON=$candidate
            return
        fi
    done
    fail "Python 3.11 or newer was not found" "apt-get install python3.11, or set PYTHON"
}

# .venv with opsctl as it is in this tree; made again when pyproject.toml has changed.
need_venv() {
    local stamp=.venv/opsctl-stamp wanted
    wanted=$(sha256sum pyproject.toml | cut -d' ' -f1)
    if [ ! -x .venv/bin/opsctl ] || [ "$(cat $stamp 2>/dev/null)" != "$wanted" ]; then
        say "making .venv"
        "$PYTHON" -m venv --clear .venv
        .venv/bin/python -m pip install -qq -e '.[dev,lab]' >&2
        printf '%s\n' "$wanted" >$stamp
    fi
    PATH=$PWD/.venv/bin:$PATH
    export PATH
}

set_up() {
    cd "$(dirname "${BASH_SOURCE[1]}")/.." || exit 1
    need_root "$@"
    need_python
    need_packages
    need_venv
}
