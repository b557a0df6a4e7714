#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes sure that what the build and the tests need is there: installs missing Debian packages when it may, else says
# exactly what to run and exits 2. Prints nothing when all is there.
set -euo pipefail

packages=(build-essential cmake ninja-build pkg-config libjansson-dev libexpat1-dev zlib1g-dev libpcre2-dev
          libutf8proc-dev libssl-dev libcmocka-dev clang-format python3 python3-pip python3-venv ca-certificates)
modules=(jansson expat zlib libpcre2-8 libutf8proc libcrypto cmocka)

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    missing=()
    for tool in cc make cmake ninja pkg-config python3; do command -v "$tool" >/dev/null || missing+=("$tool"); done
    for module in "${modules[@]}"; do
        pkg-config --exists "$module" 2>/dev/null || missing+=("$module (pkg-config module, with headers)")
    done
    [ ${#missing[@]} -eq 0 ] && exit 0
    echo "deps: this is not a Debian system; install these with its own package manager, then try again:" >&2
    printf '  %s\n' "${missing[@]}" >&2
    exit 2
fi

missing_packages() {
    local package
    for package in "${packages[@]}"; do
        # shellcheck disable=SC2016  # dpkg-query expands the format
        [ "$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null)" = "install ok installed" ] || echo "$package"
    done
}

mapfile -t missing < <(missing_packages)
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" -eq 0 ]; then
    as_root=(env)
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    as_root=(sudo -n env)
else
    echo "deps: packages are missing and this user may not install them. Run, then try again:" >&2
    echo "  sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}" >&2
    exit 2
fi

echo "deps: installing ${missing[*]}"
apt=("${as_root[@]}" DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300)
install=("${apt[@]}" install -y --no-install-recommends "${missing[@]}")
# Package lists may be absent or old: refresh them only when the first try fails.
if ! "${install[@]}" >/dev/null 2>&1 && ! { "${apt[@]}" update >/dev/null && "${install[@]}" >/dev/null; }; then
    echo "deps: apt-get could not install ${missing[*]}; its messages stand above" >&2
    exit 2
fi
