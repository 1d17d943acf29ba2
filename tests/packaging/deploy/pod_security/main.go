// SPDX-License-Identifier: Apache-2.0

// Command pod_security reads a JSON array of pod templates and writes, for each one, the reasons
// why Pod Security's "restricted" profile would reject the pod.
package main

import (
	"encoding/json"
	"log"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

func main() {
	var templates []corev1.PodTemplateSpec
	if err := json.NewDecoder(os.Stdin).Decode(&templates); err != nil {
		log.Fatal(err)
	}
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		log.Fatal(err)
	}
	restricted := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	reasons := make([][]string, len(templates))
	for i, pod := range templates {
		reasons[i] = []string{}
		for _, result := range evaluator.EvaluatePod(restricted, &pod.ObjectMeta, &pod.Spec) {
			if !result.Allowed {
				reasons[i] = append(reasons[i], result.ForbiddenReason)
			}
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(reasons); err != nil {
		log.Fatal(err)
	}
}
