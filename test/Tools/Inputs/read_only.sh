#!/bin/sh
# Runs a command where folders cannot be written, but for $TMPDIR if that is one, in a
# namespace of its own.
#   read_only.sh FOLDER[,FOLDER…] COMMAND…
folders=$1
shift
export folders
exec unshare -m sh -c '
  for folder in $(echo "$folders" | tr , " "); do
    mount --bind "$folder" "$folder" || exit 99
  done
  # A mount of its own stays as it is when the one around it becomes read-only.
  if [ -d "$TMPDIR" ]; then mount --bind "$TMPDIR" "$TMPDIR" || exit 99; fi
  for folder in $(echo "$folders" | tr , " "); do
    mount -o remount,ro,bind "$folder" || exit 99
  done
  exec "$@"' sh "$@"
