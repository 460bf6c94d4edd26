package detect

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// decodeJSON decodes a pack in JSON. Errors name the path of a value and not its line, because the
// JSON was written by a program, for example from the configuration, and the user does not see it.
func decodeJSON(text []byte) (spec Spec, err error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return spec, err
	}
	return spec, fill(reflect.ValueOf(&spec).Elem(), v, "")
}

// fill sets a part of a Spec to a decoded value. The error joins an error for each value of the
// wrong type or with an unknown key; path is the position of v.
func fill(to reflect.Value, v any, path string) error {
	if v == nil {
		return nil
	}
	if u, ok := reflect.TypeAssert[encoding.TextUnmarshaler](to.Addr()); ok {
		text, _ := scalar(v)
		return wrapPath(path, u.UnmarshalText([]byte(text)))
	}
	switch to.Kind() {
	case reflect.Struct, reflect.Map:
		object, ok := v.(map[string]any)
		if !ok {
			return wrapPath(path, errors.New("want keys and values"))
		}
		var errs []error
		for _, key := range slices.Sorted(maps.Keys(object)) {
			errs = append(errs, fillKey(to, key, object[key], strings.TrimPrefix(path+"."+key, ".")))
		}
		return errors.Join(errs...)
	case reflect.Slice:
		list, ok := v.([]any)
		if !ok {
			return wrapPath(path, errors.New("want a list"))
		}
		to.Set(reflect.MakeSlice(to.Type(), len(list), len(list)))
		var errs []error
		for i, child := range list {
			errs = append(errs, fill(to.Index(i), child, fmt.Sprintf("%s[%d]", path, i)))
		}
		return errors.Join(errs...)
	case reflect.Bool:
		b, ok := v.(bool)
		if !ok {
			return wrapPath(path, errors.New("want true or false"))
		}
		to.SetBool(b)
	case reflect.String:
		text, ok := scalar(v)
		if !ok {
			return wrapPath(path, errors.New("want a string"))
		}
		to.SetString(text)
	default: // any
		to.Set(reflect.ValueOf(v))
	}
	return nil
}

// fillKey sets a field of a struct, or a key of a map, which is a string or an int.
func fillKey(to reflect.Value, key string, v any, path string) error {
	if to.Kind() == reflect.Struct {
		var known []string
		for f := range to.Type().Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == key {
				return fill(to.FieldByIndex(f.Index), v, path)
			}
			known = append(known, name)
		}
		slices.Sort(known)
		return wrapPath(path, unknownKey(key, known))
	}
	if to.IsNil() {
		to.Set(reflect.MakeMap(to.Type()))
	}
	index := reflect.ValueOf(key)
	if to.Type().Key().Kind() == reflect.Int {
		n, err := strconv.Atoi(key)
		if err != nil {
			return wrapPath(path, errors.New("want a number"))
		}
		index = reflect.ValueOf(n)
	}
	child := reflect.New(to.Type().Elem()).Elem()
	err := fill(child, v, path)
	to.SetMapIndex(index, child)
	return err
}

func unknownKey(key string, known []string) error {
	if best := closest(key, known); best != "" {
		return fmt.Errorf("unknown key: did you mean %q?", best)
	}
	return fmt.Errorf("unknown key: want one of %s", strings.Join(known, ", "))
}

func wrapPath(path string, err error) error {
	if err == nil || path == "" {
		return err
	}
	return fmt.Errorf("%s: %w", path, err)
}
