//! The image: its last stage is built from the static binaries of this machine (no base image can be had everywhere), twice to the same
//! bytes, and what is in it starts as nobody, without rights, on a root that cannot be written.

use std::path::{Path, PathBuf};
use std::process::Command;

use ipam_tests::control_plane::tool;
use serde_json::Value;

use super::{Running, get, repo};

/// Builds both binaries with everything in them; they may be copied into an empty image.
fn static_binaries() -> [PathBuf; 2] {
    let target = "x86_64-unknown-linux-gnu";
    let done = Command::new(env!("CARGO"))
        .args(["build", "--locked", "--quiet", "--target", target, "-p", "ipam-operator", "-p", "ipamctl"])
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        .current_dir(repo("."))
        .status()
        .expect("cargo runs");
    assert!(done.success());
    let folder = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| repo("target"), PathBuf::from).join(target).join("debug");
    ["ipam-operator", "ipamctl"].map(|name| folder.join(name))
}

struct Buildah {
    folder: tempfile::TempDir,
}

impl Buildah {
    fn run(&self, args: &[&str]) -> String {
        let at = |name: &str| self.folder.path().join(name).display().to_string();
        let store = ["--root", &at("root"), "--runroot", &at("run"), "--storage-driver", "vfs"];
        let done = Command::new("buildah")
            .args(store)
            .args(args)
            .env("BUILDAH_ISOLATION", "chroot")
            .output()
            .expect("buildah runs (tests/tools/install)");
        assert!(done.status.success(), "buildah {args:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).trim().to_owned()
    }
}

/// The last stage of the Dockerfile, with what the stage before it would have made beside it.
fn last_stage(context: &Path) {
    let text = std::fs::read_to_string(repo("Dockerfile")).expect("there");
    let last = text.rsplit("\nFROM ").next().expect("a stage");
    assert!(last.starts_with("scratch\n") && last.contains("COPY --from=build /out/ "), "{last}");
    std::fs::write(context.join("Dockerfile"), format!("FROM {}", last.replace("--from=build /out/", "out/"))).expect("written");
    std::fs::create_dir(context.join("out")).expect("made");
    for binary in static_binaries() {
        let to = context.join("out").join(binary.file_name().expect("a name"));
        let done = Command::new("strip").arg("-o").arg(to).arg(binary).status().expect("strip runs");
        assert!(done.success());
    }
}

#[test]
fn the_image_starts_as_nobody_on_a_root_that_cannot_be_written() {
    let context = tempfile::tempdir().expect("a folder");
    last_stage(context.path());
    let buildah = Buildah { folder: tempfile::tempdir().expect("a folder") };
    let path = context.path().display().to_string();
    let build =
        |tag: &str| buildah.run(&["build", "--quiet", "--timestamp", "1700000000", "--build-arg", "REVISION=abc", "-t", tag, &path]);
    assert_eq!(build("localhost/first"), build("localhost/second"), "the same again, to the byte");
    let inspected: Value = serde_json::from_str(&buildah.run(&["inspect", "--type", "image", "localhost/first"])).expect("JSON");
    let config = &inspected["OCIv1"]["config"];
    assert_eq!(config["User"], "65532:65532", "{config:#}");
    assert_eq!(config["Entrypoint"][0], "/usr/local/bin/ipam-operator");
    for (label, value) in [("title", "ipam-operator"), ("revision", "abc"), ("licenses", "Apache-2.0")] {
        assert_eq!(config["Labels"][format!("org.opencontainers.image.{label}")], value);
    }

    let container = buildah.run(&["from", "localhost/first"]);
    let root = buildah.run(&["mount", &container]);
    std::fs::create_dir(Path::new(&root).join("examples")).expect("made");
    // As a kubelet starts it: a root that is read-only, the image's user, no new privileges.
    let script = "mount --bind \"$0\" \"$0\" && mount --bind \"$1\" \"$0/examples\" && mount -o remount,bind,ro \"$0\" && shift && \
                  exec setpriv --no-new-privs chroot --userspec=65532:65532 \"$0\" /usr/local/bin/ipam-operator \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, &root]).arg(repo("examples").canonicalize().expect("there"));
    command.args(["run", "--load", "/examples/leaky-cluster.yaml", "--save", "/saved.yaml"]);
    command.args(["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--leader-elect=false"]);
    let mut running = Running::start(&mut command);
    let address = running.address();
    running.says("ready");
    assert!(get(&address, "/readyz").is_some_and(|(head, _)| head.contains("200")));
    let of = |file: &str| std::fs::read_to_string(format!("/proc/{}/{file}", running.child.id())).expect("it runs");
    let status = of("status");
    for line in ["Uid:\t65532\t65532\t65532\t65532", "Gid:\t65532\t65532\t65532\t65532", "CapEff:\t0000000000000000", "NoNewPrivs:\t1"] {
        assert!(status.contains(line), "{line}: {status}");
    }
    assert!(of("mountinfo").lines().any(|l| l.contains(" / ro,")), "{}", of("mountinfo"));
    let done = Command::new("kill").args(["-TERM", &running.child.id().to_string()]).status().expect("runs");
    assert!(done.success());
    running.says("Read-only file system");
    assert_eq!(running.child.wait().expect("ends").code(), Some(1), "what it was to save it cannot write");
}

#[test]
fn the_dockerfile_is_clean_and_ends_as_nobody() {
    let file = repo("Dockerfile");
    let done = Command::new(tool("hadolint")).arg(&file).output().expect("hadolint runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
    let text = std::fs::read_to_string(file).expect("there");
    let last = text.rsplit("\nFROM ").next().expect("a stage");
    assert!(last.starts_with("scratch") && last.contains("USER 65532:65532"), "{last}");
    assert!(text.contains("--mount=type=cache") && text.contains("SOURCE_DATE_EPOCH"), "a cache, and the same bytes again");
}
