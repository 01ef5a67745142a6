package browser_test

import (
	"bytes"
	"flag"
	"image"
	"image/color"
	"image/png"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

var update = flag.Bool("update", false, "write the pictures of the README anew")

// mostPicture bounds a picture of the README in bytes.
const mostPicture = 150_000

const examples = "../../../docs/examples/*.jsonl"

// pictures are those of the README, with whether they are dark.
var pictures = map[string]bool{"../../../docs/console-light.png": false, "../../../docs/console-dark.png": true}

// The pictures of the README show the console with the examples, light and dark. Browsers and fonts differ, so what a
// new picture must have in common with the one in docs is its size and its background.
func TestPictures(t *testing.T) {
	t.Parallel()
	p := stack.Start(t, nil, "dev", "--data-dir", stack.DataDir(t))
	files, err := filepath.Glob(examples)
	require.NoError(t, err)
	code, _, errs := p.Run(t, append([]string{"import"}, files...)...)
	require.Equal(t, stack.ExitDone, code, errs)
	w := open(t, p.URL)
	for name, dark := range pictures {
		w.shape(shape{"picture", 1180, 760, dark})
		w.visit("/console/sessions/example-follow-up", http.StatusOK)
		w.click("#groups > details:last-child > summary")
		w.eval(`scrollTo(0, 0)`, nil)
		made, err := chromedp.Run(w.ctx, chromedp.CaptureScreenshot())
		require.NoError(t, err)
		if *update {
			require.NoError(t, os.WriteFile(name, made, 0o600))
		}
		kept, err := os.ReadFile(name)
		require.NoError(t, err, "go test -run Pictures -update makes it")
		for _, raw := range [][]byte{made, kept} {
			require.LessOrEqual(t, len(raw), mostPicture, name)
			picture, err := png.Decode(bytes.NewReader(raw))
			require.NoError(t, err)
			require.Equal(t, image.Pt(1180, 760), picture.Bounds().Size())
			require.Equal(t, dark, color.GrayModel.Convert(picture.At(2, 700)).(color.Gray).Y < 64, name)
		}
	}
}
