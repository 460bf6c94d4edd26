# Stands in for an assistant with a usage limit: of nine tables it gets three done
# before each reset. tideover counts the resets in TIDEOVER_WINDOWS.
case $1 in
--resume) echo "Resumed session $2." ;;
*) echo "Working through nine tide tables, session $2." ;;
esac
before=$((TIDEOVER_WINDOWS * 3))
for table in 1 2 3; do
	sleep 1
	echo "Table $((before + table)) of 9 is done."
done
if [ "$TIDEOVER_WINDOWS" -lt 2 ]; then
	echo "5-hour limit reached · resets in 6s"
	exit 1
fi
echo "All tables are done."
