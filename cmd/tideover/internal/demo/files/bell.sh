# Stands in for a phone: keeps the last messages in a file.
printf '%s  %s\n' "$TIDEOVER_TIME" "$TIDEOVER_TITLE" >>messages.txt
tail -n 50 messages.txt >messages.new && mv messages.new messages.txt
