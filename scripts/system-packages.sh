# Sourced. `system_packages NAME…` installs Debian packages as root or in CI; anybody else is told
# the line to run, and nothing is changed.
system_packages() {
    local apt=(env DEBIAN_FRONTEND=noninteractive apt-get)
    if ! command -v apt-get >/dev/null; then
        echo "needed and not found: $*; install what your system calls them" >&2
        return 1
    fi
    if [ "$(id -u)" -ne 0 ]; then
        if [ -z "${CI:-}" ] || ! sudo -n true 2>/dev/null; then
            echo "needed: sudo apt-get install --no-install-recommends $*" >&2
            return 1
        fi
        apt=(sudo -n "${apt[@]}")
    fi
    echo "installing system packages: $*"
    local said
    if ! said="$("${apt[@]}" -qq update 2>&1 \
        && "${apt[@]}" -qq -y install --no-install-recommends "$@" 2>&1)"; then
        printf 'apt-get failed:\n%s\n' "$said" >&2
        return 1
    fi
}
