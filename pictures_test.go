package tideover_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPicturesShowTheFilesOfNow checks the files that the screenshots in docs were made from, which a
// file beside each lists with their checksums. It does not check docs/recording.gif, because each
// recording makes the repository half a megabyte larger; scripts/release.sh does.
func TestPicturesShowTheFilesOfNow(t *testing.T) {
	t.Parallel()
	pictures, err := filepath.Glob("docs/*.png")
	if err != nil || len(pictures) == 0 {
		t.Fatalf("docs/*.png: %v, %v", pictures, err)
	}
	for _, picture := range pictures {
		sums, err := os.ReadFile(picture + ".sha256")
		if err != nil || len(sums) == 0 {
			t.Errorf("%s is not made by `make pictures`: %v", picture, err)
		}
		for line := range strings.Lines(string(sums)) {
			sum, file, _ := strings.Cut(strings.TrimSpace(line), "  ")
			text, err := os.ReadFile(file)
			if err != nil || fmt.Sprintf("%x", sha256.Sum256(text)) != sum {
				t.Errorf("%s has changed since %s was made: run `make pictures`, which needs chromium (%v)", file, picture, err)
			}
		}
	}
}
