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

// decodeJSON decodes a pack in JSON. A program wrote it, for example from the configuration, so its
// lines mean nothing to the user: errors name the path instead.
func decodeJSON(text []byte) (spec Spec, err error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return spec, err
	}
	return spec, fill(reflect.ValueOf(&spec).Elem(), v, "")
}

// fill sets a field to a decoded value. The error joins all values that do not fit.
func fill(to reflect.Value, v any, path string) error {
	if v == nil {
		return nil
	}
	if u, ok := reflect.TypeAssert[encoding.TextUnmarshaler](to.Addr()); ok {
		text, _ := scalar(v)
		return wrapPath(path, u.UnmarshalText([]byte(text)))
	}
	switch to.Kind() {
	case reflect.Struct:
		return fillStruct(to, v, path)
	case reflect.Map:
		return fillMap(to, v, path)
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

func fillStruct(to reflect.Value, v any, path string) error {
	object, ok := v.(map[string]any)
	if !ok {
		return wrapPath(path, errors.New("want keys and values"))
	}
	fields := map[string]int{}
	for i := range to.NumField() {
		key, _, _ := strings.Cut(to.Type().Field(i).Tag.Get("json"), ",")
		fields[key] = i
	}
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(object)) {
		if i, ok := fields[key]; ok {
			errs = append(errs, fill(to.Field(i), object[key], below(path, key)))
		} else {
			errs = append(errs, wrapPath(below(path, key), unknownKey(key, slices.Sorted(maps.Keys(fields)))))
		}
	}
	return errors.Join(errs...)
}

// fillMap sets a map with keys of type string or int.
func fillMap(to reflect.Value, v any, path string) error {
	object, ok := v.(map[string]any)
	if !ok {
		return wrapPath(path, errors.New("want keys and values"))
	}
	to.Set(reflect.MakeMap(to.Type()))
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(object)) {
		key := reflect.ValueOf(name)
		if to.Type().Key().Kind() == reflect.Int {
			n, err := strconv.Atoi(name)
			if err != nil {
				errs = append(errs, wrapPath(below(path, name), errors.New("want a number")))
				continue
			}
			key = reflect.ValueOf(n)
		}
		child := reflect.New(to.Type().Elem()).Elem()
		errs = append(errs, fill(child, object[name], below(path, name)))
		to.SetMapIndex(key, child)
	}
	return errors.Join(errs...)
}

func unknownKey(key string, known []string) error {
	if best := closest(key, known); best != "" {
		return fmt.Errorf("unknown key: did you mean %q?", best)
	}
	return fmt.Errorf("unknown key: want one of %s", strings.Join(known, ", "))
}

func below(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func wrapPath(path string, err error) error {
	if err == nil || path == "" {
		return err
	}
	return fmt.Errorf("%s: %w", path, err)
}
