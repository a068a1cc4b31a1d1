//! Runs every text case below `tests/cases`; the form is explained in `ipam_tests::script`.

use ipam_tests::{repo, script};

#[test]
fn every_text_case_holds() {
    let mut files: Vec<_> = std::fs::read_dir(repo("tests/cases")).expect("there").map(|f| f.expect("readable").path()).collect();
    files.sort();
    let mut failed = Vec::new();
    let mut ran = 0;
    for file in files.iter().filter(|f| f.extension().is_some_and(|e| e == "txt")) {
        let text = std::fs::read_to_string(file).expect("readable");
        assert!(text.contains("\nexpect "), "{}: expects nothing, so it cannot fail", file.display());
        // A line of equals signs starts the next case of the file on an empty cluster.
        for (i, case) in text.split("\n====\n").enumerate() {
            ran += 1;
            if let Err(e) = script::run(case) {
                failed.push(format!("{} case {}: {e}", file.file_name().unwrap_or_default().display(), i + 1));
            }
        }
    }
    assert!(failed.is_empty(), "{} of {ran}:\n{}", failed.len(), failed.join("\n"));
    assert!(ran >= 40, "only {ran} cases were found");
}

#[test]
fn a_case_that_does_not_hold_fails() {
    let case = "node a\npod n/p on a ips 10.0.0.0\nblock 10.0.0.0/30 a .0=h:n/p@a\nstep\n";
    assert_eq!(script::run(&format!("{case}expect nothing\n")), Ok(()));
    assert!(script::run(&format!("{case}expect release 10.0.0.0\n")).is_err());
    assert!(script::run(&format!("{case}expect leaks 10.0.0.0\n")).is_err());
    assert!(script::run("frobnicate\n").is_err());
}
