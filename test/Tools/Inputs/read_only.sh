#!/bin/sh
# Runs a command where folders cannot be written, in a namespace of its own.
#   read_only.sh FOLDER[,FOLDER…] COMMAND…
folders=$1
shift
export folders
exec unshare -m sh -c '
  for folder in $(echo "$folders" | tr , " "); do
    mount --bind "$folder" "$folder" && mount -o remount,ro,bind "$folder" || exit 99
  done
  exec "$@"' sh "$@"
