// Prints how the Go types of the Kubernetes API encode their fields: properties that the OpenAPI documents do not contain.
//
//	mkdir x && cd x && cp .../fields.go . && go mod init x && go get k8s.io/api@v0.36.4 k8s.io/apimachinery@v0.36.4 \
//	    k8s.io/apiextensions-apiserver@v0.36.4 k8s.io/kube-aggregator@v0.36.4 && go run . > fields.txt
package main

import (
	"fmt"
	"reflect"
	"sort"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

var seen = map[reflect.Type]bool{}
var lines []string

// Types with their own encoding; their fields are not printed.
var opaque = map[string]bool{"Time": true, "MicroTime": true, "Quantity": true, "IntOrString": true, "Duration": true,
	"FieldsV1": true, "RawExtension": true, "JSON": true, "JSONSchemaPropsOrBool": true, "JSONSchemaPropsOrArray": true,
	"JSONSchemaPropsOrStringArray": true}

func main() {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{admissionregistrationv1.AddToScheme, appsv1.AddToScheme,
		authenticationv1.AddToScheme, authorizationv1.AddToScheme, autoscalingv1.AddToScheme, autoscalingv2.AddToScheme,
		batchv1.AddToScheme, certificatesv1.AddToScheme, coordinationv1.AddToScheme, corev1.AddToScheme,
		discoveryv1.AddToScheme, eventsv1.AddToScheme, flowcontrolv1.AddToScheme, networkingv1.AddToScheme,
		nodev1.AddToScheme, policyv1.AddToScheme, rbacv1.AddToScheme, resourcev1.AddToScheme, schedulingv1.AddToScheme,
		storagev1.AddToScheme, apiextensionsv1.AddToScheme, apiregistrationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	for gvk, t := range scheme.AllKnownTypes() {
		if gvk.Version != runtime.APIVersionInternal {
			walk(t)
		}
	}
	sort.Strings(lines)
	fmt.Println(strings.Join(lines, "\n"))
}

func walk(t reflect.Type) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		walk(t.Elem())
		return
	case reflect.Struct:
	default:
		return
	}
	if seen[t] || opaque[t.Name()] {
		return
	}
	seen[t] = true
	words := fields(t)
	lines = append(lines, strings.Join(append([]string{openapiName(t)}, words...), " "))
}

func fields(t reflect.Type) []string {
	var words []string
	for i := 0; i < t.NumField(); i++ {
		f := t.Field(i)
		tag := strings.Split(f.Tag.Get("json"), ",")
		if f.Anonymous && (tag[0] == "" || len(tag) > 1 && tag[1] == "inline") {
			ft := f.Type
			if ft.Kind() == reflect.Pointer {
				ft = ft.Elem()
			}
			words = append(words, fields(ft)...)
			continue
		}
		if tag[0] == "-" || tag[0] == "" {
			continue
		}
		walk(f.Type)
		omitempty, omitzero := false, false
		for _, o := range tag[1:] {
			omitempty = omitempty || o == "omitempty"
			omitzero = omitzero || o == "omitzero"
		}
		mark, ft := "", f.Type
		switch {
		case ft.Kind() == reflect.Pointer:
			ft = ft.Elem()
			if !omitempty {
				mark = "!*" // written as null
			} else if ft.Kind() != reflect.Struct || opaque[ft.Name()] {
				mark = "*"
			}
		case ft.Kind() == reflect.Struct && !opaque[ft.Name()]:
			if omitzero {
				mark = "0"
			} else {
				mark = "!"
			}
		case ft.Kind() == reflect.Struct && omitzero:
			mark = ""
		case !omitempty || ft.Kind() == reflect.Struct:
			mark = "!"
		}
		word := tag[0] + mark
		if s := typeText(ft); s != "" {
			word += ":" + s
		}
		if word != tag[0] {
			words = append(words, word)
		}
	}
	return words
}

// Returns the type as text if the shape of the field does not determine it.
func typeText(t reflect.Type) string {
	inner := t
	for inner.PkgPath() == "" && (inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice || inner.Kind() == reflect.Map) {
		inner = inner.Elem()
	}
	if inner.Kind() == reflect.Uint8 && t != inner {
		return ""
	}
	if inner.PkgPath() != "" && inner.Kind() != reflect.Struct {
		return t.String()
	}
	return ""
}

func openapiName(t reflect.Type) string {
	parts := strings.Split(t.PkgPath(), "/")
	host := strings.Split(parts[0], ".")
	for i, j := 0, len(host)-1; i < j; i, j = i+1, j-1 {
		host[i], host[j] = host[j], host[i]
	}
	return strings.Join(host, ".") + "." + strings.Join(parts[1:], ".") + "." + t.Name()
}
