// Package theme has the appearance that the pages of the server and the documentation share: the
// colors for light and dark mode, the fonts, the header and the controls.
package theme

import _ "embed"

// CSS is the style sheet. The style sheet of a page begins with it.
//
//go:embed theme.css
var CSS string

// Icon is the icon of all pages, as SVG.
//
//go:embed icon.svg
var Icon string
