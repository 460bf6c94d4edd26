# Stands in for a buoy that has to be called twice, and is silent for ten seconds of
# each minute.
case $(date +%S) in
3?)
	echo "no answer from the buoy" >&2
	exit 1
	;;
esac
if [ "$TIDEOVER_ATTEMPT" = 1 ]; then
	echo "noise on the line" >&2
	exit 1
fi
echo "the buoy says $(date +%H:%M:%S), tide rising"
