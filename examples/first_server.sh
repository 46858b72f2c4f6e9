#!/bin/sh
# From nothing to messages: write a configuration, start a server with it, publish, consume, stop.
#
#   examples/first_server.sh [FOLDER]
#
# The command `anabranch` has to be on the path: in a checkout, PATH="$PWD/.venv/bin:$PATH".
# FOLDER holds the configuration and the data; a temporary one is taken, and removed, without it.
set -eu

if [ $# -gt 0 ]; then
    folder=$1
    mkdir -p "$folder"
    trap 'kill "$server" 2>/dev/null || true' EXIT
else
    folder=$(mktemp -d)
    trap 'kill "$server" 2>/dev/null || true; wait; rm -rf "$folder"' EXIT
fi
server=

anabranch config init --force --path "$folder/anabranch.toml"
cat >> "$folder/anabranch.toml" <<END

data = "$folder/data"
port = 0
web_port = 0
END
anabranch config check "$folder/anabranch.toml"

anabranch standalone --config "$folder/anabranch.toml" > "$folder/announcement" &
server=$!
until grep -q "^try it" "$folder/announcement"; do
    kill -0 "$server" || exit 1
    sleep 0.1
done
url=$(sed -n 's/^anabranch is ready: \([^ ]*\).*/\1/p' "$folder/announcement")

anabranch produce orders -m "one order" -m "another" --url "$url"
anabranch consume orders -s shop -n 2 --position earliest --timeout 30 --url "$url"
kill "$server"
wait "$server"
if [ $# -gt 0 ]; then
    echo "stopped; the data is in $folder/data"
else
    echo "stopped; the data goes with the temporary folder"
fi
