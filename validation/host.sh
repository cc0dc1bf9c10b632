#!/usr/bin/env bash
# On the GPU host: unpack what was carried, once, and put the patched packages in place.
# Usage: host.sh CARRIED_FOLDER…   (each given folder is copied to /tmp/gpu first)
set -euo pipefail
mkdir -p /tmp/gpu
for folder in "$@"; do
    name=$(basename "$folder")
    rm -rf "/tmp/gpu/$name"
    cp -r "$folder" "/tmp/gpu/$name"
done
if [ -d /tmp/gpu/pack ]; then
    # shellcheck disable=SC1091
    . /tmp/gpu/pack/install.sh
fi
if [ -d /tmp/gpu/variants ]; then
    for folder in /tmp/gpu/variants/*/; do
        variant=$(basename "$folder")
        rm -rf "/tmp/v/$variant" && mkdir -p "/tmp/v/$variant"
        cp -r /tmp/site/sglang "/tmp/v/$variant/sglang"
        cp -r "$folder." "/tmp/v/$variant/sglang/"
    done
fi
if [ ! -e /tmp/target/model.safetensors ] && [ -d /tmp/gpu/gguf-a ] && [ -d /tmp/gpu/gguf-b ]; then
    cat /tmp/gpu/gguf-a/part /tmp/gpu/gguf-b/part >/tmp/target.gguf
    PYTHONPATH=/tmp/site python3 "$(dirname "$0")/smollm2.py" /tmp/target.gguf /tmp/target
fi
if [ -d /tmp/gpu/draft ] && [ -e /tmp/target/tokenizer.json ]; then
    rm -rf /tmp/draft && cp -r /tmp/gpu/draft /tmp/draft && cp /tmp/target/tokenizer*.json /tmp/draft/
fi
