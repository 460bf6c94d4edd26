package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// spdxPackage is a package of SPDX 2.3.
type spdxPackage struct {
	ID               string    `json:"SPDXID"`
	Name             string    `json:"name"`
	Version          string    `json:"versionInfo,omitempty"`
	Location         string    `json:"downloadLocation"`
	FilesAnalyzed    bool      `json:"filesAnalyzed"`
	Purpose          string    `json:"primaryPackagePurpose"`
	Checksums        []spdxSum `json:"checksums,omitempty"`
	LicenseConcluded string    `json:"licenseConcluded"`
	LicenseDeclared  string    `json:"licenseDeclared"`
	Copyright        string    `json:"copyrightText"`
	Refs             []spdxRef `json:"externalRefs,omitempty"`
}

type spdxSum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type spdxRef struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type spdxRelation struct {
	From string `json:"spdxElementId"`
	Type string `json:"relationshipType"`
	To   string `json:"relatedSpdxElement"`
}

// extracted is a licence that SPDX has no name for.
type extracted struct {
	ID   string `json:"licenseId"`
	Name string `json:"name"`
	Text string `json:"extractedText"`
}

// bill is an SBOM: a document of SPDX 2.3.
type bill struct {
	Version     string         `json:"spdxVersion"`
	DataLicense string         `json:"dataLicense"`
	ID          string         `json:"SPDXID"`
	Name        string         `json:"name"`
	Namespace   string         `json:"documentNamespace"`
	Creation    object         `json:"creationInfo"`
	Packages    []spdxPackage  `json:"packages"`
	Relations   []spdxRelation `json:"relationships"`
	Extracted   []extracted    `json:"hasExtractedLicensingInfos"`
}

// component is a module, Go itself, or a script of the web page.
type component struct{ name, version, licenses, purl string }

// sbom returns the SBOM of a release: each binary in the folders, and what is linked into it or
// embedded in it. THIRD_PARTY_LICENSES, beside each binary, has the licences.
func sbom(folders []string, at time.Time) ([]byte, error) {
	b := bill{Version: "SPDX-2.3", DataLicense: "CC0-1.0", ID: "SPDXRef-DOCUMENT"}
	b.Creation = object{"created": at.Format(time.RFC3339), "creators": []string{"Tool: tideover-release"}}
	seen := map[string]bool{}
	for _, folder := range folders {
		r, _, err := parseName(folder + ".tar.gz")
		if err != nil {
			return nil, fmt.Errorf("sbom: %w", err)
		}
		b.Name = fmt.Sprintf("tideover_%s.spdx.json", r.version)
		b.Namespace = fmt.Sprintf("%s/releases/download/v%s/%s", homepage, r.version, b.Name)
		binary, err := os.ReadFile(filepath.Join(folder, executableName(r.system)))
		terms, err2 := os.ReadFile(filepath.Join(folder, "THIRD_PARTY_LICENSES"))
		info, err3 := buildinfo.Read(bytes.NewReader(binary))
		if err := errors.Join(err, err2, err3); err != nil {
			return nil, fmt.Errorf("sbom: %w", err)
		}
		parts, err := components(info, string(terms))
		if err != nil {
			return nil, fmt.Errorf("sbom of %s: %w", folder, err)
		}
		p := component{name: "tideover for " + r.system + "/" + r.arch, version: "v" + r.version, licenses: license}.spdx("APPLICATION")
		p.Checksums = []spdxSum{{"SHA256", digest(binary)}}
		b.Packages = append(b.Packages, p)
		b.Relations = append(b.Relations, spdxRelation{b.ID, "DESCRIBES", p.ID})
		for _, c := range parts {
			part := c.spdx("LIBRARY")
			b.Relations = append(b.Relations, spdxRelation{p.ID, "CONTAINS", part.ID})
			if !seen[part.ID] {
				seen[part.ID] = true
				b.Packages = append(b.Packages, part)
				b.extract(c.licenses)
			}
		}
	}
	return json.MarshalIndent(b, "", " ")
}

// executableName returns the name of the binary on a system.
func executableName(system string) string {
	if system == "windows" {
		return "tideover.exe"
	}
	return "tideover"
}

// components returns what is linked into a binary or embedded in it, with the licences that
// THIRD_PARTY_LICENSES lists.
func components(info *buildinfo.BuildInfo, terms string) (list []component, err error) {
	known := licensesIn(terms)
	goVersion := strings.TrimPrefix(info.GoVersion, "go")
	list = []component{{"Go, its standard library and its runtime", goVersion, known["Go, its standard library and its runtime"], "pkg:golang/std@" + goVersion}}
	for use, kinds := range known {
		if script, ok := strings.CutSuffix(use, ", on the page"); ok {
			name, version, _ := strings.Cut(script, " ")
			list = append(list, component{name, version, kinds, ""})
		}
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Replace != nil {
			return nil, fmt.Errorf("%s is replaced", m.Path)
		}
		kinds := known[m.Path+" "+m.Version]
		if m.Path == own || strings.HasPrefix(m.Path, own+"/") {
			kinds = license
		}
		list = append(list, component{m.Path, m.Version, kinds, "pkg:golang/" + m.Path + "@" + m.Version})
	}
	for _, c := range list {
		if c.licenses == "" || c.version == "" {
			err = errors.Join(err, fmt.Errorf("%s %s: no licence or no version", c.name, c.version))
		}
	}
	slices.SortFunc(list, func(a, b component) int { return strings.Compare(a.name, b.name) })
	return list, err
}

// licensesIn returns the list in THIRD_PARTY_LICENSES: the kinds of licences of each component.
func licensesIn(text string) map[string]string {
	list, _, _ := strings.Cut(text, "\n====")
	kinds := map[string]string{}
	for line := range strings.Lines(list) {
		if use, k, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
			kinds[use] = k
		}
	}
	return kinds
}

var notInID = regexp.MustCompile(`[^A-Za-z0-9.]+`)

// expression returns the licences as an expression of SPDX. A notice is not a licence.
func (c component) expression() string {
	var names []string
	for kind := range strings.SplitSeq(c.licenses, ", ") {
		if strings.Contains(kind, " ") {
			kind = "LicenseRef-" + notInID.ReplaceAllString(kind, "-")
		}
		if kind != "notice" {
			names = append(names, kind)
		}
	}
	return strings.Join(names, " AND ")
}

// spdx returns the component as a package.
func (c component) spdx(purpose string) spdxPackage {
	p := spdxPackage{
		ID: "SPDXRef-" + notInID.ReplaceAllString(c.name+"-"+c.version, "-"), Name: c.name, Version: c.version, Location: "NOASSERTION", Purpose: purpose,
		LicenseConcluded: c.expression(), LicenseDeclared: c.expression(), Copyright: "NOASSERTION",
	}
	if c.purl != "" {
		p.Refs = []spdxRef{{"PACKAGE-MANAGER", "purl", c.purl}}
	}
	return p
}

// extract adds the licences that SPDX has no name for.
func (b *bill) extract(kinds string) {
	for kind := range strings.SplitSeq(kinds, ", ") {
		e := extracted{"LicenseRef-" + notInID.ReplaceAllString(kind, "-"), kind, "See THIRD_PARTY_LICENSES, which is beside the binary in each archive, package and image."}
		if strings.Contains(kind, " ") && !slices.Contains(b.Extracted, e) {
			b.Extracted = append(b.Extracted, e)
		}
	}
}
