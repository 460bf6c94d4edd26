//go:build unix

package serve_test

import (
	"bytes"
	"fmt"
	"html"
	"image"
	"image/color"
	"image/draw"
	"image/gif"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/tideover/tideover/cmd/tideover/internal/browsertest"
	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
	"github.com/tideover/tideover/internal/testfile"
)

// The recording shows a window with a title bar, in CSS pixels.
const (
	filmWidth, filmHeight = 1120, 656
	filmBar               = 36
)

// terminalPage is the window, with a terminal in it.
const terminalPage = `<style>
body { margin: 0; height: 100vh; overflow: hidden; background: #10171c; color: #d7e0e4; font: 22px/1.6 "DejaVu Sans Mono", monospace }
header { height: %dpx; box-sizing: border-box; padding: 0 14px; display: flex; gap: 8px; align-items: center; background: #26323a; color: #b9c6cc; font: 15px "DejaVu Sans", sans-serif }
header i { width: 12px; height: 12px; border-radius: 50%%; background: #50616b }
header span { margin-left: 8px }
pre { margin: 0; padding: 20px 24px; font: inherit; white-space: pre-wrap }
b { color: #fff } s { color: #4cc38a; text-decoration: none } u { background: #d7e0e4; text-decoration: none }
</style><header><i></i><i></i><i></i><span></span></header><pre></pre>`

// film is a recording: pictures, and how long each is shown.
type film struct {
	*testing.T
	tab      *browsertest.Tab
	pictures []image.Image
	lasts    []time.Duration
	terminal string // the HTML in the terminal
}

// add adds what the tab shows, below a title bar if it is not nil.
func (f *film) add(bar image.Image, lasts time.Duration) {
	f.Helper()
	p := shot(f.T, f.tab)
	if bar != nil {
		whole := image.NewRGBA(bar.Bounds())
		draw.Draw(whole, whole.Bounds(), bar, image.Point{}, draw.Src)
		draw.Draw(whole, p.Bounds().Add(image.Pt(0, whole.Bounds().Dy()-p.Bounds().Dy())), p, image.Point{}, draw.Src)
		p = whole
	}
	f.pictures, f.lasts = append(f.pictures, p), append(f.lasts, lasts)
}

// open shows the window with an empty terminal.
func (f *film) open(title string) {
	f.Helper()
	f.tab.Do(chromedp.Navigate("about:blank"), chromedp.EmulateViewport(filmWidth, filmHeight))
	browsertest.Eval[string](f.tab, fmt.Sprintf("document.body.innerHTML = %q", fmt.Sprintf(terminalPage, filmBar)))
	f.title(title)
}

// title changes the title of the window.
func (f *film) title(text string) {
	f.Helper()
	browsertest.Eval[string](f.tab, fmt.Sprintf("document.querySelector('header span').innerText = %q", text))
}

// write adds HTML to the terminal.
func (f *film) write(text string, lasts time.Duration) {
	f.Helper()
	f.terminal += text
	browsertest.Eval[string](f.tab, fmt.Sprintf("document.querySelector('pre').innerHTML = %q", f.terminal+"<u> </u>"))
	f.add(nil, lasts)
}

// run types a line, runs it in a shell in the folder of the repository, and shows its output with its
// times. It returns the output.
func (f *film) run(line string) string {
	f.Helper()
	f.write("<s>$</s> <b>", 500*time.Millisecond)
	shown := strings.Replace(line, " -- ", " \\\n    -- ", 1)
	for part := range strings.SplitAfterSeq(shown, " ") {
		f.write(html.EscapeString(part), 110*time.Millisecond)
	}
	f.write("</b>\n", 0)
	cmd, _ := clitest.Command(f.T)
	path := filepath.Dir(clitest.CommandPath(f.T)) + ":" + os.Getenv("PATH")
	cmd.Path, cmd.Args, cmd.Dir = "/bin/sh", []string{"sh", "-c", line}, testfile.Repository(f)
	cmd.Env = append(cmd.Env, "PATH="+path)
	r, w, err := os.Pipe()
	if err != nil {
		f.Fatal(err)
	}
	defer r.Close()
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		f.Fatal(err)
	}
	_ = w.Close()
	// The output is shown when the command has ended, so that drawing it takes none of its time.
	var texts []string
	var times []time.Time
	for chunk := make([]byte, 4096); ; {
		n, err := r.Read(chunk)
		texts, times = append(texts, string(chunk[:n])), append(times, time.Now())
		if err == io.EOF {
			break
		}
		if err != nil {
			f.Fatal(err)
		}
	}
	if err := cmd.Wait(); err != nil {
		f.Fatal(err)
	}
	for i, text := range texts[:len(texts)-1] {
		f.write(html.EscapeString(text), times[i+1].Sub(times[i]))
	}
	return strings.Join(texts, "")
}

// scrollTo scrolls the page until the element is at the top.
func (f *film) scrollTo(selector string) {
	f.Helper()
	browsertest.Eval[bool](f.tab, fmt.Sprintf(`(scrollTo(0, document.querySelector(%q).getBoundingClientRect().top + scrollY - 8), true)`, selector))
}

// watch films the page that is open, until done.
func (f *film) watch(bar image.Image, done func() bool) {
	f.Helper()
	for over := false; !over; {
		began := time.Now()
		over = done()
		f.add(bar, 0)
		time.Sleep(150 * time.Millisecond) // real clock: the recording has the times of the page
		f.lasts[len(f.lasts)-1] = time.Since(began)
	}
}

// hold shows the last picture longer.
func (f *film) hold(d time.Duration) { f.lasts[len(f.lasts)-1] += d }

// gif encodes the recording. Each picture has only the pixels that differ from the one before.
func (f *film) gif() []byte {
	f.Helper()
	list := paletted(63, f.pictures...) // with one more color for pixels that do not change, 6 bits for each
	all := append(list[0].Palette, color.Transparent)
	g := &gif.GIF{Config: image.Config{ColorModel: all, Width: list[0].Rect.Dx(), Height: list[0].Rect.Dy()}}
	// This picture differs from the first everywhere.
	last := image.NewPaletted(list[0].Rect, color.Palette{color.Transparent})
	var at, shown time.Duration // the time so far, and how much of it the encoded pictures have
	for i, p := range list {
		at += f.lasts[i]
		delay := (at - shown).Round(10 * time.Millisecond)
		if delay < 20*time.Millisecond {
			continue // too short for browsers
		}
		shown += delay
		if part := difference(last, p, uint8(len(all)-1)); part != nil {
			part.Palette = all
			g.Image, g.Delay, g.Disposal = append(g.Image, part), append(g.Delay, 0), append(g.Disposal, gif.DisposalNone)
			last = p
		}
		g.Delay[len(g.Delay)-1] += int(delay / (10 * time.Millisecond))
	}
	var file bytes.Buffer
	if err := gif.EncodeAll(&file, g); err != nil {
		f.Fatal(err)
	}
	f.Logf("%d pictures in %v, %d kB", len(g.Image), at, file.Len()/1000)
	return file.Bytes()
}

// difference returns the part of b that differs from a, in which equal pixels have the color clear. It
// is nil if all are equal.
func difference(a, b *image.Paletted, clear uint8) *image.Paletted {
	var changed image.Rectangle
	for y := range b.Rect.Dy() {
		for x := range b.Rect.Dx() {
			if a.At(x, y) != b.At(x, y) {
				changed = changed.Union(image.Rect(x, y, x+1, y+1))
			}
		}
	}
	if changed.Empty() {
		return nil
	}
	part := image.NewPaletted(changed, b.Palette)
	for y := changed.Min.Y; y < changed.Max.Y; y++ {
		for x := changed.Min.X; x < changed.Max.X; x++ {
			part.SetColorIndex(x, y, clear)
			if a.At(x, y) != b.At(x, y) {
				part.SetColorIndex(x, y, b.ColorIndexAt(x, y))
			}
		}
	}
	return part
}

// TestRecordingInABrowser writes the recording in README.md: make recording. A release fails when the
// files that it is made from have changed.
func TestRecordingInABrowser(t *testing.T) {
	if !*writePictures {
		return // TestPagesInABrowser checks the same pages
	}
	s := serveShop(t)
	f := &film{T: t, tab: browsertest.Open(t)}
	s.signIn(f.tab)
	readme, err := os.ReadFile(testfile.Repository(t, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	first := regexp.MustCompile(`(?m)^\$ (tideover exec .*)$`).FindSubmatch(readme)
	if first == nil {
		t.Fatal("README.md has no line that begins with $ tideover exec")
	}
	f.open("its web page: every attempt and every wait of a run")
	runBar := shot(t, f.tab)
	f.open("its web page: all runs")
	listBar := shot(t, f.tab)
	s.start("refund", "nightly-report", "stock", "order")
	f.open("a command, retried until it succeeds")
	f.run(string(first[1]))
	f.hold(2 * time.Second)
	s.start("order", "order")
	f.title("a workflow, started on a server")
	f.write("\n", 0)
	id := strings.TrimSpace(f.run("tideover run order"))
	f.hold(time.Second)
	f.tab.Do(chromedp.EmulateViewport(filmWidth, filmHeight-filmBar))
	s.openLive(f.tab, "/runs")
	f.scrollTo("#live")
	end := time.Now().Add(3500 * time.Millisecond)
	f.watch(listBar, func() bool { return time.Now().After(end) }) // real clock: how long the list is shown
	s.openLive(f.tab, "/runs/"+id)
	f.scrollTo("main")
	f.watch(runBar, func() bool {
		return browsertest.Eval[string](f.tab, `document.getElementById("said").innerText`) == "✓ succeeded"
	})
	f.hold(3 * time.Second)
	writePicture(t, "docs/recording.gif", f.gif(), append(drawnFrom, "internal/console/pages/templates/runs.html", "examples/flaky.sh")...)
}
