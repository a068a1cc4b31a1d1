//! A real control plane for tests: etcd and kube-apiserver on loopback, RBAC on, with the definitions of one API group.
//!
//! The processes end with this one, however it ends: a shell holds them until its standard input closes.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use backon::{ConstantBuilder, Retryable};
use ipam_datastore::Group;
use ipam_datastore::live::{Access, Connection};
use ipam_datastore::wire::stored_kinds;
use kube::Client;
use serde::Deserialize as _;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::repo;

/// How often readiness is asked for, and how many times at most.
const EVERY: Duration = Duration::from_millis(100);
const TIMES: usize = 600;

/// What service accounts ask is written down, nothing else.
const AUDIT_POLICY: &str = r#"{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
"rules": [{"level": "Metadata", "userGroups": ["system:serviceaccounts"]}, {"level": "None"}]}"#;

/// A program that ends when this is dropped.
struct Process {
    shell: Child,
    /// Holds its process id.
    pid: PathBuf,
}

impl Process {
    fn start(program: &Path, args: &[String], log: &Path) -> Self {
        let (log, pid) = (std::fs::File::create(log).expect("a log"), log.with_extension("pid"));
        // The program runs until the shell's input ends.
        let script = "exec 3<&0; file=$1; shift; \"$@\" 3<&- </dev/null & pid=$!; echo $pid >$file; cat <&3 >/dev/null; kill -9 $pid; wait $pid 2>/dev/null";
        let shell = Command::new("sh")
            .args(["-c", script, "sh"])
            .arg(&pid)
            .arg(program)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log)
            .spawn()
            .unwrap_or_else(|e| panic!("starting {}: {e}", program.display()));
        Self { shell, pid }
    }

    /// Lets it stand still.
    fn freeze(&self) -> Slow {
        self.hindered("kill -STOP $pid; cat >/dev/null")
    }

    /// Lets it run a fifth of the time.
    fn slow(&self) -> Slow {
        self.hindered("(while kill -STOP $pid; do sleep 0.08; kill -CONT $pid; sleep 0.02; done) & loop=$!; cat >/dev/null; kill $loop")
    }

    fn hindered(&self, how: &str) -> Slow {
        let script = format!("pid=$(cat $1); {how}; kill -CONT $pid");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script, "sh"]).arg(&self.pid).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Slow(shell.spawn().expect("starts"))
    }
}

fn end(shell: &mut Child) {
    drop(shell.stdin.take());
    drop(shell.wait());
}

impl Drop for Process {
    fn drop(&mut self) {
        end(&mut self.shell);
    }
}

/// A process is slow, or stands still, until this is dropped.
pub struct Slow(Child);

impl Drop for Slow {
    fn drop(&mut self) {
        end(&mut self.0);
    }
}

/// A control plane.
pub struct ControlPlane {
    dir: TempDir,
    ports: [u16; 3],
    etcd: Option<Process>,
    server: Option<Process>,
    /// The group whose definitions it has.
    pub group: Group,
}

/// The folder of the programs: built on first use, minutes then.
static PROGRAMS: LazyLock<PathBuf> = LazyLock::new(|| {
    let done = Command::new(repo("tests/tools/install")).stderr(Stdio::inherit()).output().expect("tests/tools/install runs");
    assert!(done.status.success(), "tests/tools/install failed");
    PathBuf::from(String::from_utf8_lossy(&done.stdout).trim())
});

/// A program of tests/tools.
pub fn tool(name: &str) -> PathBuf {
    PROGRAMS.join(name)
}

/// Runs helm, with nothing of whoever runs the tests.
///
/// # Errors
/// It fails, with what it says.
pub fn helm(args: &[&str]) -> Result<String, String> {
    let home = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(tool("helm"));
    for folder in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
        command.env(folder, home.path());
    }
    let done = command.args(args).current_dir(repo(".")).output().expect("helm runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if done.status.success() { Ok(text(&done.stdout)) } else { Err(text(&done.stderr)) }
}

fn free_ports() -> [u16; 3] {
    let held: Vec<TcpListener> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port")).collect();
    std::array::from_fn(|i| held[i].local_addr().expect("bound").port())
}

impl ControlPlane {
    /// Starts one, and waits until it serves the definitions of `group` and KubeVirt's.
    pub async fn start(group: Group) -> Self {
        let plane = Self::bare(group).await;
        plane.define_all().await;
        plane
    }

    async fn define_all(&self) {
        let set = if self.group == Group::V1 { "v1" } else { "v3" };
        self.define(&format!("tests/data/crds/{set}.yaml"), |_| {}).await;
        self.define("tests/data/crds/kubevirt.yaml", |_| {}).await;
    }

    /// Takes the definition of a kind away, by its name such as `ipamblocks.crd.projectcalico.org`.
    pub async fn undefine(&self, name: &str) {
        remove(&self.client().await, &format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}")).await;
    }

    /// Starts one without definitions.
    pub async fn bare(group: Group) -> Self {
        let dir = tempfile::Builder::new().prefix("ipam-test-").tempdir().expect("a folder");
        let mut plane = Self { dir, ports: free_ports(), etcd: None, server: None, group };
        plane.write_files();
        plane.start_etcd();
        plane.start_server();
        plane.ready().await;
        plane
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write_files(&self) {
        let key = rcgen::KeyPair::generate().expect("a key");
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": {"server": format!("https://127.0.0.1:{}", self.ports[2]), "insecure-skip-tls-verify": true}}],
            "users": [{"name": "admin", "user": {"tokenFile": self.file("token")}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
            "current-context": "test",
        });
        for (name, text) in [
            ("sa.key", key.serialize_pem()),
            ("sa.pub", key.public_key_pem()),
            ("tokens.csv", "first,admin,admin,\"system:masters\"\nsecond,admin,admin,\"system:masters\"\nnobody,nobody,nobody\n".into()),
            ("token", "first".into()),
            ("audit.yaml", AUDIT_POLICY.into()),
            ("kubeconfig", config.to_string()),
        ] {
            std::fs::write(self.file(name), text).expect("written");
        }
    }

    /// Starts etcd, after [`Self::stop_etcd`] over the same data.
    pub fn start_etcd(&mut self) {
        let [client, peer, _] = self.ports.map(|p| format!("http://127.0.0.1:{p}"));
        let args = [
            format!("--data-dir={}", self.file("etcd").display()),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=default={peer}"),
            "--unsafe-no-fsync".into(),
            "--log-level=error".into(),
        ];
        self.etcd = Some(Process::start(&tool("etcd"), &args, &self.file("etcd.log")));
    }

    /// Kills etcd.
    pub fn stop_etcd(&mut self) {
        self.etcd = None;
    }

    /// Starts the API server, after [`Self::stop_server`] on the same port.
    pub fn start_server(&mut self) {
        let key = |name: &str| self.file(name).display().to_string();
        let args = [
            format!("--etcd-servers=http://127.0.0.1:{}", self.ports[0]),
            format!("--secure-port={}", self.ports[2]),
            format!("--cert-dir={}", key("certs")),
            format!("--token-auth-file={}", key("tokens.csv")),
            format!("--service-account-key-file={}", key("sa.pub")),
            format!("--service-account-signing-key-file={}", key("sa.key")),
            "--service-account-issuer=https://test.invalid".into(),
            "--bind-address=127.0.0.1".into(),
            "--authorization-mode=RBAC".into(),
            "--disable-admission-plugins=ServiceAccount".into(),
            "--endpoint-reconciler-type=none".into(),
            "--service-cluster-ip-range=10.0.0.0/24".into(),
            format!("--audit-policy-file={}", key("audit.yaml")),
            format!("--audit-log-path={}", key("audit.log")),
        ];
        self.server = Some(Process::start(&tool("kube-apiserver"), &args, &self.file("server.log")));
    }

    /// Kills the API server.
    pub fn stop_server(&mut self) {
        self.server = None;
    }

    /// The API server runs a fifth of the time.
    pub fn slow_server(&self) -> Slow {
        self.server.as_ref().expect("runs").slow()
    }

    /// etcd runs a fifth of the time.
    pub fn slow_etcd(&self) -> Slow {
        self.etcd.as_ref().expect("runs").slow()
    }

    /// etcd stands still.
    pub fn freeze_etcd(&self) -> Slow {
        self.etcd.as_ref().expect("runs").freeze()
    }

    /// Waits until the API server says that it is ready.
    pub async fn ready(&self) {
        let ask = || async { self.client().await.request_text(get("/readyz")).await };
        if let Err(e) = ask.retry(ConstantBuilder::default().with_delay(EVERY).with_max_times(TIMES)).await {
            let log = std::fs::read_to_string(self.file("server.log")).unwrap_or_default();
            panic!("the API server is not ready: {e}\n{}", log.lines().rev().take(20).collect::<Vec<_>>().join("\n"));
        }
    }

    /// How an administrator reaches it.
    pub fn access(&self) -> Access {
        Access { kubeconfig: Some(self.file("kubeconfig")), context: None }
    }

    /// How the holder of a token reaches it; `nobody` may do nothing.
    pub fn access_as(&self, token: &str) -> Access {
        let number = self.dir.path().read_dir().map_or(0, Iterator::count);
        let text = std::fs::read_to_string(self.file("kubeconfig")).expect("written at the start");
        let mut config: Value = serde_json::from_str(&text).expect("JSON");
        config["users"][0]["user"] = json!({ "token": token });
        let path = self.file(&format!("kubeconfig.{number}"));
        std::fs::write(&path, config.to_string()).expect("written");
        Access { kubeconfig: Some(path), context: None }
    }

    /// A token of a service account.
    pub async fn token_of(&self, namespace: &str, account: &str) -> String {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}});
        let answer = create(&self.client().await, &path, &request).await;
        answer["status"]["token"].as_str().expect("a token").to_owned()
    }

    /// Runs helm on it, which succeeds.
    pub fn helm(&self, args: &[&str]) -> String {
        let kubeconfig = self.file("kubeconfig").display().to_string();
        helm(&[&["--kubeconfig", &kubeconfig][..], args].concat()).unwrap_or_else(|e| panic!("helm {args:?}: {e}"))
    }

    /// What service accounts have asked since the start: verb, group, resource, and the status of the answer.
    pub fn audited(&self) -> Vec<(String, String, String, u64)> {
        let text = std::fs::read_to_string(self.file("audit.log")).unwrap_or_default();
        let entry = |line: &str| {
            let event: Value = serde_json::from_str(line).ok()?;
            let about = &event["objectRef"];
            let part = |v: &Value| v.as_str().unwrap_or_default().to_owned();
            Some((
                part(&event["verb"]),
                part(&about["apiGroup"]),
                part(&about["resource"]),
                event["responseStatus"]["code"].as_u64().unwrap_or(0),
            ))
        };
        text.lines().filter_map(entry).collect()
    }

    /// Forgets everything that is stored, as if etcd had been set up anew. The definitions of the group are there again.
    pub async fn replace_etcd(&mut self) {
        self.stop_server();
        self.stop_etcd();
        std::fs::remove_dir_all(self.file("etcd")).expect("removed");
        self.start_etcd();
        self.start_server();
        self.ready().await;
        self.define_all().await;
    }

    /// The file that holds the administrator's token: `first`, `second` are accepted, `nobody` is who may do nothing.
    pub fn token_file(&self) -> PathBuf {
        self.file("token")
    }

    /// A new connection of an administrator.
    pub async fn connection(&self) -> Connection {
        Connection::new(self.access()).await.expect("a client")
    }

    /// A new client of an administrator.
    pub async fn client(&self) -> Client {
        self.connection().await.client()
    }

    /// Creates the definitions in a file, each changed by `change`, and waits until they are served.
    pub async fn define(&self, file: &str, change: impl Fn(&mut Value)) {
        let text = std::fs::read_to_string(repo(file)).expect("definitions");
        let client = self.client().await;
        for document in yaml_serde::Deserializer::from_str(&text) {
            let mut crd = Value::deserialize(document).expect("a definition");
            change(&mut crd);
            create(&client, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd).await;
            let spec = &crd["spec"];
            let part = |v: &Value| v.as_str().unwrap_or_default().to_owned();
            let served =
                format!("/apis/{}/{}/{}", part(&spec["group"]), part(&spec["versions"][0]["name"]), part(&spec["names"]["plural"]));
            let ask = || async { client.request_text(get(&served)).await };
            ask.retry(ConstantBuilder::default().with_delay(EVERY).with_max_times(TIMES)).await.expect("served");
        }
    }

    /// Deletes every object of the group.
    pub async fn clear(&self) {
        let client = self.client().await;
        for (_, plural) in stored_kinds(self.group) {
            let path = format!("/apis/{}/{plural}", self.group.api_version());
            remove(&client, &path).await;
        }
    }
}

/// Where objects of a kind are, by `apiVersion`, kind and namespace.
fn place(object: &Value) -> String {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let plural = match kind.as_str() {
        "BlockAffinity" => "blockaffinities".into(),
        kind => format!("{}s", kind.to_lowercase()),
    };
    let root = if version == "v1" { "/api/v1".to_owned() } else { format!("/apis/{version}") };
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{root}/namespaces/{namespace}/{plural}"),
        None => format!("{root}/{plural}"),
    }
}

impl ControlPlane {
    /// Creates every object of a dump, with its status; answers with what is stored then, in the order of the dump.
    pub async fn fill(&self, file: &str) -> Vec<Value> {
        self.fill_with(file, |_| {}).await
    }

    /// The same with a change to each object.
    pub async fn fill_with(&self, file: &str, change: impl Fn(&mut Value)) -> Vec<Value> {
        let text = std::fs::read_to_string(repo(file)).expect("a dump");
        let dump: Value = yaml_serde::from_str(&text).expect("YAML");
        let mut items = dump["items"].as_array().expect("a list").clone();
        // Namespaces come before what is in them.
        items.sort_by_key(|object| object["kind"] != "Namespace");
        items.iter_mut().for_each(change);
        let client = self.client().await;
        let mut stored = Vec::new();
        for mut object in items {
            let path = place(&object);
            let name = object["metadata"]["name"].as_str().expect("a name").to_owned();
            for field in ["resourceVersion", "uid", "creationTimestamp", "generation", "managedFields"] {
                object["metadata"].as_object_mut().expect("metadata").remove(field);
            }
            if object["kind"] == "Namespace" && client.request_text(get(&format!("{path}/{name}"))).await.is_ok() {
                continue;
            }
            let mut there = create(&client, &path, &object).await;
            if ["Pod", "Node"].contains(&object["kind"].as_str().unwrap_or_default()) {
                there["status"] = object["status"].clone();
                there = replace(&client, &format!("{path}/{name}/status"), &there).await;
            }
            stored.push(there);
        }
        stored
    }
}

/// A reading.
pub fn get(path: &str) -> http::Request<Vec<u8>> {
    http::Request::get(path).body(Vec::new()).expect("a request")
}

/// Creates an object as it is; the stored one comes back.
pub async fn create(client: &Client, path: &str, object: &Value) -> Value {
    let request = http::Request::post(path).header("content-type", "application/json").body(object.to_string().into_bytes());
    client.request(request.expect("a request")).await.unwrap_or_else(|e| panic!("creating at {path}: {e}\n{object}"))
}

/// Replaces an object as it is; the stored one comes back.
pub async fn replace(client: &Client, path: &str, object: &Value) -> Value {
    let request = http::Request::put(path).header("content-type", "application/json").body(object.to_string().into_bytes());
    client.request(request.expect("a request")).await.unwrap_or_else(|e| panic!("replacing {path}: {e}\n{object}"))
}

/// Deletes an object.
pub async fn remove(client: &Client, path: &str) {
    let request = http::Request::delete(path).body(Vec::new()).expect("a request");
    client.request_text(request).await.unwrap_or_else(|e| panic!("deleting {path}: {e}"));
}
