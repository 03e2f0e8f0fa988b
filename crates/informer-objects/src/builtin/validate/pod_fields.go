// Prints the fields of the server's own form of a pod's spec, in the order in which it writes them.
//
// Needs k8s.io/kubernetes@v1.36.4, with each k8s.io module that its go.mod replaces taken at v0.36.4.
package main

import (
	"fmt"
	"reflect"
	"sort"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/apis/core"
)

var seen = map[string]bool{}
var lines []string

func main() {
	walk(reflect.TypeOf(core.PodSpec{}), reflect.TypeOf(v1.PodSpec{}))
	sort.Strings(lines)
	fmt.Println(strings.Join(lines, "\n"))
}

func elem(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	return t
}

func walk(t, ext reflect.Type) {
	t, ext = elem(t), elem(ext)
	if t.Kind() != reflect.Struct || seen[t.Name()] || t == ext {
		return
	}
	switch t.Name() {
	case "Quantity", "Time", "IntOrString", "LabelSelector":
		return
	}
	seen[t.Name()] = true
	lines = append(lines, t.Name()+" "+strings.Join(fields(t, ext), " "))
}

func jsonName(f reflect.StructField) string { return strings.Split(f.Tag.Get("json"), ",")[0] }

func find(ext reflect.Type, name string) (reflect.StructField, bool) {
	f, ok := ext.FieldByName(name)
	return f, ok
}

func fields(t, ext reflect.Type) []string {
	var words []string
	for i := 0; i < t.NumField(); i++ {
		f := t.Field(i)
		if f.Anonymous {
			words = append(words, fields(f.Type, ext)...)
			continue
		}
		ef, ok := find(ext, f.Name)
		name := "?"
		if ok {
			name = jsonName(ef)
			walk(f.Type, ef.Type)
		}
		words = append(words, f.Name+":"+name+":"+class(f.Type))
	}
	return words
}

func class(t reflect.Type) string {
	switch t.Name() {
	case "Quantity", "Time", "IntOrString", "LabelSelector":
		return "=" + t.Name()
	}
	switch t.Kind() {
	case reflect.Pointer:
		return "*" + class(t.Elem())
	case reflect.Slice:
		return "[" + class(t.Elem())
	case reflect.Map:
		return "{" + class(t.Elem())
	case reflect.Struct:
		return t.Name()
	case reflect.String:
		return "s"
	case reflect.Bool:
		return "b"
	default:
		return "i"
	}
}
