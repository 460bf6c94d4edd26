package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// rpmTags are the entries of a header of an rpm package by their numbers. A value is a string,
// []string, []uint16, []uint32, or translated for a string that could be translated.
type rpmTags map[uint32]any

type translated string

// Numbers of entries, of /usr/include/rpm/rpmtag.h.
const (
	rpmSums                   = 62
	rpmMain                   = 63
	rpmLanguages              = 100
	rpmHeaderSHA256           = 273
	rpmName                   = 1000
	rpmVersion                = 1001
	rpmRelease                = 1002
	rpmSummary                = 1004
	rpmDescription            = 1005
	rpmBuildTime              = 1006
	rpmBuildHost              = 1007
	rpmSize                   = 1009
	rpmLicense                = 1014
	rpmGroup                  = 1016
	rpmURL                    = 1020
	rpmOS                     = 1021
	rpmArch                   = 1022
	rpmFileSizes              = 1028
	rpmFileModes              = 1030
	rpmFileDeviceNumbers      = 1033
	rpmFileTimes              = 1034
	rpmFileDigests            = 1035
	rpmFileLinks              = 1036
	rpmFileFlags              = 1037
	rpmFileUsers              = 1039
	rpmFileGroups             = 1040
	rpmSource                 = 1044
	rpmFileVerify             = 1045
	rpmProvides               = 1047
	rpmFileDevices            = 1095
	rpmFileInodes             = 1096
	rpmFileLanguages          = 1097
	rpmProvideFlags           = 1112
	rpmProvideVersions        = 1113
	rpmFolderIndexes          = 1116
	rpmBaseNames              = 1117
	rpmFolders                = 1118
	rpmPayloadFormat          = 1124
	rpmCompressor             = 1125
	rpmCompression            = 1126
	rpmFileDigestAlgorithm    = 5011
	rpmEncoding               = 5062
	rpmPayloadDigest          = 5092
	rpmPayloadDigestAlgorithm = 5093

	// In the header with checksums, two numbers mean something else.
	rpmSumsSize        = 1000
	rpmSumsPayloadSize = 1007

	rpmEqual  = 8 // of a provided version
	rpmSHA256 = 8
)

// rpmArchitectures has the names of the architectures.
var rpmArchitectures = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}

// rpmHeader encodes a header. Its first entry, the region, covers all others.
func rpmHeader(region uint32, tags rpmTags) []byte {
	const kindInt16, kindInt32, kindString, kindBytes, kindStrings, kindTranslated = 3, 4, 6, 7, 8, 9
	var index, store []byte
	entry := func(to []byte, values ...uint32) []byte {
		for _, v := range values {
			to = binary.BigEndian.AppendUint32(to, v)
		}
		return to
	}
	add := func(tag, kind uint32, count, align int, data []byte) {
		store = pad(store, align)
		index = entry(index, tag, kind, uint32(len(store)), uint32(count))
		store = append(store, data...)
	}
	for _, tag := range slices.Sorted(maps.Keys(tags)) {
		var data []byte
		switch v := tags[tag].(type) {
		case string:
			add(tag, kindString, 1, 1, append([]byte(v), 0))
		case translated:
			add(tag, kindTranslated, 1, 1, append([]byte(v), 0))
		case []string:
			add(tag, kindStrings, len(v), 1, []byte(strings.Join(v, "\x00")+"\x00"))
		case []uint16:
			for _, n := range v {
				data = binary.BigEndian.AppendUint16(data, n)
			}
			add(tag, kindInt16, len(v), 2, data)
		case []uint32:
			add(tag, kindInt32, len(v), 4, entry(nil, v...))
		}
	}
	count := uint32(len(tags) + 1)
	first := entry(nil, region, kindBytes, uint32(len(store)), 16)
	store = entry(store, region, kindBytes, -count*16, 16) // the region ends with this trailer
	head := entry([]byte("\x8e\xad\xe8\x01\x00\x00\x00\x00"), count, uint32(len(store)))
	return slices.Concat(head, first, index, store)
}

// pad appends zeros up to a multiple of align.
func pad(data []byte, align int) []byte {
	return append(data, make([]byte, (align-len(data)%align)%align)...)
}

// cpio returns the files as a cpio archive, in the format newc.
func cpio(files []member, r release) (out []byte) {
	for i, f := range append(slices.Clone(files), member{name: "TRAILER!!!"}) {
		number, name, at := i+1, "./"+f.name, r.at.Unix()
		if i == len(files) {
			number, name, at = 0, f.name, 0
		}
		out = append(out, "070701"...)
		for _, v := range []int64{int64(number), int64(unixMode(f.mode)), 0, 0, 1, at, int64(len(f.data)), 0, 0, 0, 0, int64(len(name) + 1), 0} {
			out = fmt.Appendf(out, "%08x", v)
		}
		out = pad(append(append(out, name...), 0), 4)
		out = pad(append(out, f.data...), 4)
	}
	return out
}

// unixMode returns the mode of a file or a folder as Unix numbers it.
func unixMode(mode fs.FileMode) uint16 {
	switch {
	case mode == 0: // the end of a cpio archive
		return 0
	case mode.IsDir():
		return 0o040000 | uint16(mode.Perm())
	}
	return 0o100000 | uint16(mode.Perm())
}

// writeRPM writes an rpm package: a lead, a header with checksums, a header that describes the
// package, and a cpio archive. It has no scripts and no signature.
func writeRPM(w io.Writer, files []member, r release) error {
	files, err := installed(files, true)
	if err != nil {
		return err
	}
	files = slices.DeleteFunc(withFolders(files), func(m member) bool { // other folders belong to the system
		return m.mode.IsDir() && path.Base(m.name) != "tideover"
	})
	version, at := packageVersion(r.version), uint32(r.at.Unix())
	plain := cpio(files, r)
	payload := compress(plain)
	tags := rpmTags{
		rpmLanguages:              []string{"C"},
		rpmName:                   "tideover",
		rpmVersion:                version,
		rpmRelease:                "1",
		rpmSummary:                translated(summary),
		rpmDescription:            translated(description),
		rpmBuildTime:              []uint32{at},
		rpmBuildHost:              "localhost",
		rpmLicense:                license,
		rpmGroup:                  translated("Unspecified"),
		rpmURL:                    homepage,
		rpmOS:                     "linux",
		rpmArch:                   rpmArchitectures[r.arch],
		rpmSource:                 "tideover-" + version + "-1.src.rpm", // without it, rpm takes this for a source package
		rpmProvides:               []string{"tideover"},
		rpmProvideFlags:           []uint32{rpmEqual},
		rpmProvideVersions:        []string{version + "-1"},
		rpmPayloadFormat:          "cpio",
		rpmCompressor:             "gzip",
		rpmCompression:            "9",
		rpmEncoding:               "utf-8",
		rpmPayloadDigest:          []string{digest(payload)},
		rpmPayloadDigestAlgorithm: []uint32{rpmSHA256},
	}
	maps.Copy(tags, rpmFiles(files, at))
	header := rpmHeader(rpmMain, tags)
	sums := rpmHeader(rpmSums, rpmTags{
		rpmHeaderSHA256:    digest(header),
		rpmSumsSize:        []uint32{uint32(len(header) + len(payload))},
		rpmSumsPayloadSize: []uint32{uint32(len(plain))},
	})
	lead := make([]byte, 96)
	copy(lead, "\xed\xab\xee\xdb\x03\x00\x00\x00\x00\x01tideover-"+version+"-1")
	lead[77], lead[79] = 1, 5 // Linux; there is a header with checksums
	_, err = w.Write(slices.Concat(lead, pad(sums, 8), header, payload))
	return err
}

func digest(data []byte) string { return fmt.Sprintf("%x", sha256.Sum256(data)) }

// rpmFiles returns the entries that describe files.
func rpmFiles(files []member, at uint32) rpmTags {
	var size uint32
	var sizes, times, inodes, dirs, zeros, ones, all []uint32
	var modes, devices []uint16
	var digests, users, names, folders, none []string
	for i, f := range files {
		dir, name := path.Split("/" + f.name)
		if !slices.Contains(folders, dir) {
			folders = append(folders, dir)
		}
		dirs, names = append(dirs, uint32(slices.Index(folders, dir))), append(names, name)
		sum := ""
		if !f.mode.IsDir() {
			sum = digest(f.data)
		}
		digests, modes = append(digests, sum), append(modes, unixMode(f.mode))
		size += uint32(len(f.data))
		sizes, times, inodes = append(sizes, uint32(len(f.data))), append(times, at), append(inodes, uint32(i+1))
		users, none, devices = append(users, "root"), append(none, ""), append(devices, 0)
		zeros, ones, all = append(zeros, 0), append(ones, 1), append(all, 0xffffffff)
	}
	return rpmTags{
		rpmSize:                []uint32{size},
		rpmFileSizes:           sizes,
		rpmFileModes:           modes,
		rpmFileDeviceNumbers:   devices,
		rpmFileTimes:           times,
		rpmFileDigests:         digests,
		rpmFileDigestAlgorithm: []uint32{rpmSHA256},
		rpmFileLinks:           none,
		rpmFileFlags:           zeros,
		rpmFileUsers:           users,
		rpmFileGroups:          users,
		rpmFileVerify:          all, // rpm --verify compares everything
		rpmFileDevices:         ones,
		rpmFileInodes:          inodes,
		rpmFileLanguages:       none,
		rpmFolderIndexes:       dirs,
		rpmBaseNames:           names,
		rpmFolders:             folders,
	}
}

// readRPM returns what the package installs.
func readRPM(data []byte) ([]member, error) {
	at := 96
	for range 2 {
		at = (at + 7) / 8 * 8
		if len(data) < at+16 {
			return nil, errors.New("this is not an rpm package")
		}
		at += 16 + int(binary.BigEndian.Uint32(data[at+8:]))*16 + int(binary.BigEndian.Uint32(data[at+12:]))
	}
	if len(data) < at {
		return nil, errors.New("the rpm package is cut off")
	}
	z, err := gzip.NewReader(bytes.NewReader(data[at:]))
	if err != nil {
		return nil, err
	}
	plain, err := io.ReadAll(z)
	if err != nil {
		return nil, err
	}
	return readCpio(plain)
}

func readCpio(data []byte) (list []member, err error) {
	field := func(n int) int {
		v, e := strconv.ParseUint(string(data[6+8*n:14+8*n]), 16, 31)
		err = errors.Join(err, e)
		return int(v)
	}
	for len(data) >= 110 {
		mode, size, end := field(1), field(6), 110+field(11)
		start := (end + 3) / 4 * 4
		if err != nil || len(data) < start+size {
			break
		}
		name := string(data[110 : end-1])
		if name == "TRAILER!!!" {
			return list, nil
		}
		m := member{name: strings.TrimPrefix(name, "./"), mode: fs.FileMode(mode & 0o777), data: data[start : start+size]}
		if mode&0o170000 == 0o040000 {
			m.mode |= fs.ModeDir
		}
		list, data = append(list, m), data[min((start+size+3)/4*4, len(data)):]
	}
	return nil, errors.Join(errors.New("the cpio archive is cut off"), err)
}
