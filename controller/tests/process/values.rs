//! Values of the chart: each one is documented, has an effect, and is refused in words when it is odd.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use ipam_datastore::Group;
use ipam_tests::control_plane::{ControlPlane, create, get, helm, tool};
use serde_json::{Value, json};

use super::repo;

const CHART: &str = "charts/ipam-operator";

fn template(values: &[&str]) -> String {
    helm(&[&["template", "ipam-operator", CHART, "-n", "ops"][..], values].concat()).unwrap_or_else(|e| panic!("{values:?}: {e}"))
}

/// A value, what to set beside it, an example, and what must then be in what is rendered, and was not before.
/// `-`: something that was there goes.
const VALUES: &[(&str, &str, &str, &str)] = &[
    ("nameOverride", "", "\"other\"", "app.kubernetes.io/name: other"),
    ("fullnameOverride", "", "\"other\"", "name: other\n"),
    ("namespaceOverride", "", "\"elsewhere\"", "namespace: elsewhere"),
    ("commonLabels", "", "{\"team\":\"net\"}", "team: net"),
    ("imagePullSecrets", "", "[{\"name\":\"pull\"}]", "name: pull"),
    ("replicaCount", "", "3", "replicas: 3"),
    ("revisionHistoryLimit", "", "4", "revisionHistoryLimit: 4"),
    ("strategy.type", "", "\"Recreate\"", "type: Recreate"),
    ("strategy.rollingUpdate.maxSurge", "", "1", "maxSurge: 1"),
    ("strategy.rollingUpdate.maxUnavailable", "", "2", "maxUnavailable: 2"),
    ("image.registry", "", "\"reg.example\"", "image: \"reg.example/ipam-operator:0.1.0\""),
    ("image.repository", "", "\"net/op\"", "image: \"net/op:0.1.0\""),
    ("image.tag", "", "\"v9\"", "image: \"ipam-operator:v9\""),
    (
        "image.digest",
        "image.tag=v9",
        "\"sha256:0000000000000000000000000000000000000000000000000000000000000000\"",
        "image: \"ipam-operator@sha256:0000",
    ),
    ("image.pullPolicy", "", "\"Always\"", "imagePullPolicy: Always"),
    ("config.log.format", "", "\"text\"", "format: text"),
    ("config.server.listen", "", "\"[::]:9999\"", "containerPort: 9999"),
    ("serviceAccount.create", "", "false", "serviceAccountName: default"),
    ("serviceAccount.name", "", "\"me\"", "serviceAccountName: me"),
    ("serviceAccount.annotations", "", "{\"a\":\"b1\"}", "a: b1"),
    ("serviceAccount.labels", "", "{\"a\":\"b2\"}", "a: b2"),
    ("serviceAccount.automountServiceAccountToken", "", "false", "-automountServiceAccountToken: true"),
    ("rbac.create", "", "false", "-kind: ClusterRole\n"),
    ("rbac.apiGroups", "", "[\"projectcalico.org\"]", "apiGroups: [\"projectcalico.org\"]"),
    ("rbac.kubevirt", "", "false", "-apiGroups: [kubevirt.io]"),
    ("rbac.extraRules", "", "[{\"apiGroups\":[\"x.y\"],\"resources\":[\"z\"],\"verbs\":[\"get\"]}]", "- x.y"),
    ("deploymentAnnotations", "", "{\"a\":\"b3\"}", "a: b3"),
    ("deploymentLabels", "", "{\"a\":\"b4\"}", "a: b4"),
    ("podAnnotations", "", "{\"a\":\"b5\"}", "a: b5"),
    ("podLabels", "", "{\"a\":\"b6\"}", "a: b6"),
    ("podSecurityContext.runAsNonRoot", "", "null", "-runAsNonRoot"),
    ("podSecurityContext.seccompProfile.type", "", "\"Localhost\"", "type: Localhost"),
    ("securityContext.allowPrivilegeEscalation", "", "true", "allowPrivilegeEscalation: true"),
    ("securityContext.readOnlyRootFilesystem", "", "false", "readOnlyRootFilesystem: false"),
    ("securityContext.capabilities.drop", "", "[\"NET_RAW\"]", "- NET_RAW"),
    ("hostNetwork", "", "true", "hostNetwork: true\n      dnsPolicy: ClusterFirstWithHostNet"),
    ("hostUsers", "", "false", "hostUsers: false"),
    ("dnsPolicy", "", "\"Default\"", "dnsPolicy: Default"),
    ("enableServiceLinks", "", "true", "enableServiceLinks: true"),
    ("terminationGracePeriodSeconds", "", "60", "terminationGracePeriodSeconds: 60"),
    ("priorityClassName", "", "\"\"", "-priorityClassName"),
    ("resources.requests.cpu", "", "\"1\"", "cpu: \"1\""),
    ("resources.requests.memory", "", "\"1Mi\"", "memory: 1Mi"),
    ("resources.limits.memory", "", "\"2Gi\"", "memory: 2Gi"),
    ("startupProbe", "", "{\"failureThreshold\":99}", "failureThreshold: 99"),
    ("livenessProbe", "", "{\"timeoutSeconds\":7}", "timeoutSeconds: 7"),
    ("readinessProbe", "", "{\"periodSeconds\":8}", "periodSeconds: 8"),
    ("nodeSelector.kubernetes\\.io/os", "", "\"plan9\"", "kubernetes.io/os: plan9"),
    ("affinity", "", "{\"nodeAffinity\":{}}", "nodeAffinity: {}"),
    ("tolerations", "", "[{\"key\":\"k\",\"operator\":\"Exists\"}]", "- key: k\n"),
    (
        "topologySpreadConstraints",
        "",
        "[{\"topologyKey\":\"rack\",\"maxSkew\":1,\"whenUnsatisfiable\":\"DoNotSchedule\"}]",
        "topologyKey: rack",
    ),
    ("podDisruptionBudget.enabled", "", "false", "-kind: PodDisruptionBudget"),
    ("podDisruptionBudget.maxUnavailable", "", "\"50%\"", "maxUnavailable: 50%"),
    ("podDisruptionBudget.minAvailable", "", "1", "minAvailable: 1"),
    ("podDisruptionBudget.unhealthyPodEvictionPolicy", "", "\"IfHealthyBudget\"", "unhealthyPodEvictionPolicy: IfHealthyBudget"),
    ("metrics.service.enabled", "", "false", "-kind: Service\n"),
    ("metrics.service.port", "", "80", "port: 80\n"),
    ("metrics.service.annotations", "", "{\"a\":\"b7\"}", "a: b7"),
    ("metrics.service.labels", "", "{\"a\":\"b8\"}", "a: b8"),
    ("metrics.service.ipFamilyPolicy", "", "\"PreferDualStack\"", "ipFamilyPolicy: PreferDualStack"),
    ("metrics.service.ipFamilies", "", "[\"IPv6\"]", "ipFamilies: [\"IPv6\"]"),
    ("metrics.tls.secretName", "", "\"cert\"", "secretName: cert"),
    ("adminPage.expose", "adminPage.acknowledgeOpen=true", "true", "allowRemoteAdmin: true"),
    ("adminPage.port", "adminPage.expose=true,adminPage.acknowledgeOpen=true", "9999", "adminListen: '[::]:9999'"),
    ("adminPage.acknowledgeOpen", "adminPage.expose=true,networkPolicy.enabled=true", "true", ""),
    ("prometheusRule.enabled", "prometheusRule.renderMode=alwaysRender", "true", "kind: PrometheusRule"),
    ("prometheusRule.renderMode", "prometheusRule.enabled=true", "\"alwaysRender\"", "kind: PrometheusRule"),
    ("prometheusRule.namespace", "PR", "\"mon\"", "namespace: mon"),
    ("prometheusRule.additionalLabels", "PR", "{\"role\":\"alerts\"}", "role: alerts"),
    ("prometheusRule.selector", "PR", "\"job=\\\"ipam\\\",env=\\\"prod\\\"\"", "up{job=\"ipam\",env=\"prod\"}"),
    ("prometheusRule.runbookUrl", "PR", "\"https://runbooks.example/ipam\"", "runbook_url: https://runbooks.example/ipam#ipampoolfull"),
    ("prometheusRule.disabled", "PR", "[\"IPAMPoolFull\"]", "-alert: IPAMPoolFull\n"),
    ("prometheusRule.severities", "PR", "{\"IPAMPoolFull\":\"page\"}", "severity: page"),
    ("grafanaDashboard.enabled", "", "true", "grafana_dashboard: \"1\""),
    ("grafanaDashboard.namespace", "grafanaDashboard.enabled=true", "\"graf\"", "namespace: graf"),
    ("grafanaDashboard.sidecarLabel", "grafanaDashboard.enabled=true", "\"dash\"", "dash: \"1\""),
    ("grafanaDashboard.sidecarLabelValue", "grafanaDashboard.enabled=true", "\"yes\"", "grafana_dashboard: \"yes\""),
    ("grafanaDashboard.annotations", "grafanaDashboard.enabled=true", "{\"folder\":\"Net\"}", "folder: Net"),
    ("grafanaDashboard.extraLabels", "grafanaDashboard.enabled=true", "{\"a\":\"b9\"}", "a: b9"),
    ("networkPolicy.enabled", "", "true", "kind: NetworkPolicy"),
    (
        "networkPolicy.metricsFrom",
        "networkPolicy.enabled=true",
        "[{\"namespaceSelector\":{\"matchLabels\":{\"team\":\"mon\"}}}]",
        "team: mon",
    ),
    (
        "networkPolicy.adminFrom",
        "networkPolicy.enabled=true,adminPage.expose=true",
        "[{\"namespaceSelector\":{\"matchLabels\":{\"team\":\"adm\"}}}]",
        "team: adm",
    ),
    ("networkPolicy.apiServer.ports", "networkPolicy.enabled=true", "[8443]", "port: 8443"),
    ("networkPolicy.apiServer.cidrs", "networkPolicy.enabled=true", "[\"10.0.0.1/32\"]", "cidr: \"10.0.0.1/32\""),
    ("networkPolicy.dns", "networkPolicy.enabled=true", "false", "-port: 53"),
    ("networkPolicy.extraEgress", "networkPolicy.enabled=true", "[{\"ports\":[{\"port\":123}]}]", "port: 123"),
    ("tests.enabled", "", "false", "-healthcheck"),
    ("extraArgs", "", "[\"--kubeconfig=/x\"]", "- --kubeconfig=/x"),
    ("extraEnv", "", "[{\"name\":\"E\",\"value\":\"v\"}]", "name: E\n"),
    ("extraVolumes", "", "[{\"name\":\"vol\",\"emptyDir\":{}}]", "name: vol\n"),
    ("extraVolumeMounts", "", "[{\"name\":\"vol\",\"mountPath\":\"/vol\"}]", "mountPath: /vol"),
    ("extraContainers", "", "[{\"name\":\"side\",\"image\":\"s\"}]", "name: side"),
    ("extraInitContainers", "", "[{\"name\":\"init\",\"image\":\"s\"}]", "name: init"),
    ("extraObjects", "", "[{\"apiVersion\":\"v1\",\"kind\":\"Secret\",\"metadata\":{\"name\":\"sec\"}}]", "kind: Secret"),
];

/// Those of both monitors; `@` is which one.
const MONITORS: &[(&str, &str, &str, &str)] = &[
    ("enabled", "@.renderMode=alwaysRender", "true", "kind: @"),
    ("renderMode", "@.enabled=true", "\"alwaysRender\"", "kind: @"),
    ("namespace", "@.enabled=true,@.renderMode=alwaysRender", "\"mon\"", "namespace: mon"),
    ("additionalLabels", "@.enabled=true,@.renderMode=alwaysRender", "{\"release\":\"kps\"}", "release: kps"),
    ("interval", "@.enabled=true,@.renderMode=alwaysRender", "\"13s\"", "interval: 13s"),
    ("scrapeTimeout", "@.enabled=true,@.renderMode=alwaysRender", "\"12s\"", "scrapeTimeout: 12s"),
    ("honorLabels", "@.enabled=true,@.renderMode=alwaysRender", "false", "honorLabels: false"),
    ("sampleLimit", "@.enabled=true,@.renderMode=alwaysRender", "5000", "sampleLimit: 5000"),
    ("relabelings", "@.enabled=true,@.renderMode=alwaysRender", "[{\"action\":\"labeldrop\",\"regex\":\"r1\"}]", "regex: r1"),
    ("metricRelabelings", "@.enabled=true,@.renderMode=alwaysRender", "[{\"action\":\"drop\",\"regex\":\"r2\"}]", "regex: r2"),
    ("tlsConfig", "@.enabled=true,@.renderMode=alwaysRender", "{\"serverName\":\"s\"}", "serverName: s"),
];

/// All rows.
fn values() -> Vec<[String; 4]> {
    let texts = |(name, set, example, want): (&str, &str, &str, &str)| [name, set, example, want].map(str::to_owned);
    let mut all: Vec<[String; 4]> = VALUES.iter().copied().map(texts).collect();
    for (value, kind) in [("serviceMonitor", "ServiceMonitor"), ("podMonitor", "PodMonitor")] {
        for (name, set, example, want) in MONITORS {
            all.push([format!("{value}.{name}"), set.replace('@', value), (*example).to_owned(), want.replace('@', kind)]);
        }
    }
    all
}

/// What some values need beside them.
fn beside(set: &str) -> String {
    match set {
        "PR" => "prometheusRule.enabled=true,prometheusRule.renderMode=alwaysRender".into(),
        other => other.into(),
    }
}

/// The names of all values; lists, and maps that are empty, are values.
fn leaves(value: &Value, path: &str, out: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                let key = key.replace('.', "\\.");
                leaves(value, &if path.is_empty() { key } else { format!("{path}.{key}") }, out);
            }
        }
        _ => drop(out.insert(path.into())),
    }
}

fn defaults() -> Value {
    let text = std::fs::read_to_string(repo(CHART).join("values.yaml")).expect("there");
    yaml_serde::from_str(&text).expect("YAML")
}

#[test]
fn j_every_value_has_an_effect() {
    let mut all = BTreeSet::new();
    leaves(&defaults(), "", &mut all);
    let values = values();
    let listed: BTreeSet<String> = values.iter().map(|[name, ..]| name.clone()).collect();
    assert_eq!(all, listed, "each value has its row");
    let mut wrong = Vec::new();
    for [name, set, example, want] in &values {
        let (set, value) = (beside(set), format!("{name}={example}"));
        let before = if set.is_empty() { template(&[]) } else { template(&["--set", &set]) };
        let mut args = if set.is_empty() { Vec::new() } else { vec!["--set", set.as_str()] };
        args.extend(["--set-json", value.as_str()]);
        let after = template(&args);
        let holds = match want.strip_prefix('-').filter(|w| !w.starts_with(' ')) {
            Some(gone) => before.contains(gone) && !after.contains(gone),
            None => after.contains(want) && (want.is_empty() || !before.contains(want)),
        };
        if !holds {
            wrong.push(format!("{name}: {want:?}"));
        }
    }
    assert!(wrong.is_empty(), "without effect: {wrong:#?}");
}

/// Every value has a comment, and the README is made from them.
#[test]
fn j_the_readme_of_the_chart_is_as_made() {
    let done = Command::new(tool("helm-docs"))
        .args(["--dry-run", "--log-level=warning", "--chart-search-root"])
        .arg(repo(CHART))
        .output()
        .expect("runs");
    let want = String::from_utf8_lossy(&done.stdout).trim().to_owned() + "\n";
    let path = repo(CHART).join("README.md");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &want).expect("written");
    }
    assert!(std::fs::read_to_string(path).unwrap_or_default() == want, "BLESS=1 writes it anew");
    for line in want.lines().filter(|l| l.starts_with("| ") && !l.starts_with("| Key")) {
        let says = line.trim_end_matches('|').rsplit('|').next().expect("a column").trim();
        assert!(!says.is_empty(), "no comment: {line}");
    }
}

/// What people install, as it is rendered.
const SETS: [(&str, &[&str]); 5] = [
    ("default", &[]),
    ("audit", &["--set", "config.mode=audit,replicaCount=1"]),
    (
        "repair-one-group",
        &["--set", "config.gc.indexRepair=repair,rbac.apiGroups={projectcalico.org},rbac.kubevirt=false,config.gc.kubevirt=off"],
    ),
    ("host-network", &["--set", "hostNetwork=true,priorityClassName=,config.server.listen=127.0.0.1:9194,tests.enabled=false"]),
    (
        "monitored",
        &[
            "--set",
            "serviceMonitor.enabled=true,serviceMonitor.renderMode=alwaysRender,networkPolicy.enabled=true,adminPage.expose=true,metrics.tls.secretName=cert",
        ],
    ),
];

#[test]
fn j_what_people_install_is_rendered_as_before() {
    for (name, values) in SETS {
        let path = repo("tests/data/chart").join(format!("{name}.yaml"));
        let got = template(values);
        if std::env::var_os("BLESS").is_some() {
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(&path, &got).expect("written");
        }
        assert!(
            std::fs::read_to_string(&path).unwrap_or_default() == got,
            "{name} is another one than {}: BLESS=1 writes it anew",
            path.display()
        );
    }
}

#[test]
fn j_odd_values_are_refused_in_words() {
    for (wrong, says) in [
        ("config.brake.maxShares=1", "maxShares"),
        ("config.mode=watch", "value must be one of 'enforce', 'audit'"),
        ("replicaCount=two", "got string, want integer"),
        ("config.gc.leakGracePeriod=soon", "/config/gc/leakGracePeriod"),
        ("image.tags=x", "additional properties 'tags' not allowed"),
        ("image.digest=latest", "/image/digest"),
        ("serviceMonitor.enabled=true,podMonitor.enabled=true", "/podMonitor/enabled"),
        ("serviceMonitor.renderMode=never", "/serviceMonitor/renderMode"),
        ("serviceMonitor.enabled=true,serviceMonitor.renderMode=failIfMissing", "is not served here"),
        ("serviceMonitor.interval=often", "/serviceMonitor/interval"),
        ("prometheusRule.disabled={PoolFull}", "/prometheusRule/disabled/0"),
        ("networkPolicy.apiServer.cidrs={10.0.0.1}", "/networkPolicy/apiServer/cidrs/0"),
        ("adminPage.expose=true", "networkPolicy.enabled"),
        ("adminPage.port=0", "/adminPage/port"),
        ("terminationGracePeriodSeconds=5", "/terminationGracePeriodSeconds"),
        ("metrics.service.port=99999", "/metrics/service/port"),
        ("rbac.apiGroups={apps}", "/rbac/apiGroups/0"),
        ("podDisruptionBudget.unhealthyPodEvictionPolicy=Never", "unhealthyPodEvictionPolicy"),
        ("commonLabels.a=true", "/commonLabels/a"),
        ("Replicas=1", "additional properties 'Replicas' not allowed"),
    ] {
        let said = helm(&["template", "ipam-operator", CHART, "--set", wrong]).expect_err(wrong);
        assert!(said.contains(says), "{wrong}: {said}");
    }
}

/// The API server takes everything, monitors too, where their kinds are served; where not, the notes say what was left out.
#[tokio::test(flavor = "multi_thread")]
async fn j_a_server_takes_everything() {
    let plane = ControlPlane::bare(Group::V3).await;
    let on = [
        "--set",
        "serviceMonitor.enabled=true,prometheusRule.enabled=true,grafanaDashboard.enabled=true,networkPolicy.enabled=true,adminPage.expose=true,metrics.tls.secretName=cert",
    ];
    let install = [&["install", "ipam-operator", CHART, "--namespace", "default"][..], &on].concat();
    let dry = [&install[..], &["--dry-run=server"]].concat();
    let without = plane.helm(&dry);
    assert!(
        !without.contains("kind: ServiceMonitor") && without.contains("Left out, for its kind is not served here: ServiceMonitor"),
        "{without}"
    );
    let client = plane.client().await;
    for (plural, kind) in [("servicemonitors", "ServiceMonitor"), ("podmonitors", "PodMonitor"), ("prometheusrules", "PrometheusRule")] {
        let schema = json!({ "openAPIV3Schema": { "type": "object", "properties": { "spec": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } } } });
        let crd = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": { "name": format!("{plural}.monitoring.coreos.com") },
            "spec": { "group": "monitoring.coreos.com", "scope": "Namespaced", "names": { "plural": plural, "kind": kind, "singular": kind.to_lowercase(), "listKind": format!("{kind}List") },
                "versions": [{ "name": "v1", "served": true, "storage": true, "schema": schema }] },
        });
        create(&client, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd).await;
    }
    super::chart::until("monitors are served", async || {
        client.request_text(get("/apis/monitoring.coreos.com/v1/podmonitors")).await.is_ok()
    })
    .await;
    let with = plane.helm(&dry);
    assert!(with.contains("kind: ServiceMonitor") && with.contains("kind: PrometheusRule") && !with.contains("Left out"), "{with}");
    // The server checks fields only when it stores: so it is installed, too.
    plane.helm(&install);
    let made = async |path: &str| client.request::<Value>(get(path)).await.expect("there");
    let rule = made("/apis/monitoring.coreos.com/v1/namespaces/default/prometheusrules/ipam-operator").await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("rules.json");
    std::fs::write(&file, rule["spec"].to_string()).expect("written");
    let done = Command::new(tool("promtool")).args(["check", "rules"]).arg(&file).output().expect("runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
    let maps = made("/api/v1/namespaces/default/configmaps?labelSelector=grafana_dashboard%3D1").await;
    let maps = maps["items"].as_array().expect("a list");
    assert_eq!(maps.len(), 4);
    for map in maps {
        for (name, text) in map["data"].as_object().expect("data") {
            let there: Value = serde_json::from_str(text.as_str().expect("text")).expect("JSON");
            let file = std::fs::read_to_string(Path::new(&repo(CHART)).join("files/dashboards").join(name)).expect("there");
            assert_eq!(there, serde_json::from_str::<Value>(&file).expect("JSON"));
        }
    }
    plane.helm(&["uninstall", "ipam-operator", "--namespace", "default"]);
}

/// Pod security of the server itself: by default the pods are good for a restricted namespace, and with the host's network only for a
/// privileged one.
#[tokio::test(flavor = "multi_thread")]
async fn l_pods_are_admitted_where_they_should_be() {
    let plane = ControlPlane::bare(Group::V3).await;
    let client = plane.client().await;
    for level in ["restricted", "privileged"] {
        let labels = json!({ "pod-security.kubernetes.io/enforce": level });
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": level, "labels": labels } });
        create(&client, "/api/v1/namespaces", &namespace).await;
    }
    let admitted = async |level: &str, values: &[&str]| {
        let mut answers = Vec::new();
        for document in template(values).split("\n---\n") {
            let object: Value = yaml_serde::from_str(document).expect("YAML");
            let mut pod = match object["kind"].as_str() {
                Some("Deployment") => object["spec"]["template"].clone(),
                Some("Pod") => object.clone(),
                _ => continue,
            };
            pod["metadata"]["name"] = "tried".into();
            pod["metadata"]["namespace"] = level.into();
            let path = format!("/api/v1/namespaces/{level}/pods?dryRun=All");
            let request = axum::http::Request::post(path).header("content-type", "application/json");
            let answer = client.request::<Value>(request.body(pod.to_string().into_bytes()).expect("a request")).await;
            answers.push(answer.map(drop).map_err(|e| e.to_string()));
        }
        answers
    };
    let all = |n| vec![Ok(()); n];
    assert_eq!(admitted("restricted", &[]).await, all(2), "the operator, and the pod of helm test");
    assert_eq!(
        admitted("restricted", &["--set", "metrics.tls.secretName=cert,adminPage.expose=true,adminPage.acknowledgeOpen=true"]).await,
        all(2)
    );
    let host = ["--set", "hostNetwork=true,tests.enabled=false"];
    assert_eq!(admitted("privileged", &host).await, all(1));
    let refused = admitted("restricted", &host).await;
    assert!(matches!(&refused[..], [Err(why)] if why.contains("host namespaces")), "{refused:?}");
}
