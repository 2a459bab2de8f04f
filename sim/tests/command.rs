//! The command line as a person meets it.

use std::process::Command;

fn steady_sim(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_steady-sim")).args(arguments).output().expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn demo_talks_to_a_real_server_and_says_that_all_claims_hold() {
    let (code, out, err) = steady_sim(&["demo"]);
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(out.contains("a real server, over real pipes") && !out.contains("FAILS"), "{out}");
    assert!(!out.contains('\x1b'), "no colours where there is no terminal");
}

#[test]
fn demo_speaks_to_machines() {
    let (code, out, _) = steady_sim(&["demo", "--json"]);
    assert_eq!(code, Some(0));
    let report: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(report["holds"], true);
    assert!(report["sections"].as_array().is_some_and(|sections| sections.len() >= 9));
}

#[test]
fn bad_input_is_explained() {
    let (code, _, err) = steady_sim(&["serve", "--stdio"]);
    assert_eq!(code, Some(2));
    assert!(err.contains("--ledger"), "{err}");
    let (code, _, err) = steady_sim(&["serve", "--stdio", "--ledger", "/proc/no/such/place/shop.db"]);
    assert_eq!(code, Some(2));
    assert!(err.contains("/proc/no/such/place/shop.db"), "{err}");
    let (code, _, err) = steady_sim(&["dmeo"]);
    assert_eq!(code, Some(2));
    assert!(err.contains("demo"), "{err}");
}

#[test]
fn a_shell_is_told_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let (code, out, err) = steady_sim(&["completions", shell]);
        assert_eq!(code, Some(0), "{err}");
        assert!(out.contains("demo") && out.contains("completions"), "{shell}: {out}");
    }
    let (code, _, err) = steady_sim(&["completions", "tcsh"]);
    assert_eq!(code, Some(2));
    assert!(err.contains("bash"), "it names the shells that it knows: {err}");
}

#[test]
fn an_address_that_cannot_be_served_is_named_and_makes_no_ledger() {
    let dir = tempfile::tempdir().expect("a directory");
    let ledger = dir.path().join("shop.db");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().map(|address| (taken, address.to_string())).expect("its address");
    for address in ["foo", &taken.1] {
        let (code, _, err) = steady_sim(&["serve", "--http", address, "--ledger", ledger.to_str().expect("text")]);
        assert!(code == Some(2) && err.contains(&format!("--http {address}: ")), "{code:?} {err}");
        assert!(!ledger.exists(), "{address}");
    }
}

#[test]
fn each_json_says_whether_it_holds_and_a_byte_order_mark_is_no_word() {
    let dir = tempfile::tempdir().expect("a directory");
    let place = |name: &str| dir.path().join(name).to_str().expect("text").to_owned();
    let (page, script, design) = (place("page.html"), place("mine.lab"), place("mine.json"));
    std::fs::write(&script, "\u{feff}call A\nwait 5ms\ncomplete A\n").expect("written");
    std::fs::write(&design, "\u{feff}{\"operation\":{\"name\":\"a\",\"effect\":\"read\"}}").expect("written");
    let commands: [&[&str]; 4] = [
        &["explore", "--json", "--out", &page],
        &["lab", "--json"],
        &["lab", "--json", "--script", &script],
        &["review", "--json", &design],
    ];
    for command in commands {
        let (code, out, err) = steady_sim(command);
        let told: serde_json::Value = serde_json::from_str(&out).unwrap_or_default();
        assert_eq!((code, &told["holds"]), (Some(0), &true.into()), "{command:?}: {out}{err}");
        assert!(out.lines().count() > 1, "every command prints it over lines");
    }
}

#[test]
fn the_swarm_prints_figures_and_the_same_hash_in_each_process() {
    let run = |jobs: &str| {
        let (code, out, err) = steady_sim(&["swarm", "--seeds", "0..12", "--jobs", jobs, "--json"]);
        assert_eq!(code, Some(0), "{out}{err}");
        let report: serde_json::Value = serde_json::from_str(&out).expect("JSON");
        assert_eq!(report["holds"], true);
        assert_eq!(report["seeds"], 12);
        assert!(report["requests_per_minute"].as_u64().is_some_and(|figure| figure > 0));
        (report["hash"].clone(), report["requests"].clone())
    };
    assert_eq!(run("1"), run("2"));
    let (code, out, _) = steady_sim(&["swarm", "--seeds", "5..7"]);
    assert_eq!(code, Some(0));
    assert!(out.contains("every promise was kept") && out.contains("requests at servers"), "{out}");
}

#[test]
fn a_failure_is_written_and_replayed() {
    let dir = tempfile::tempdir().expect("a directory");
    let place = dir.path().to_str().expect("text");
    let (code, out, err) =
        steady_sim(&["swarm", "--seeds", "0..50", "--mutant", "answers-twice", "--out", place, "--json"]);
    assert_eq!(code, Some(1), "{err}");
    let report: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    let file = report["events_file"].as_str().expect("a file");
    let (code, out, _) = steady_sim(&["replay", file]);
    assert_eq!(code, Some(1));
    assert!(out.contains("one-final") && out.contains("< server") && out.contains("FAILED"), "{out}");
    let (code, out, _) = steady_sim(&["replay", file, "--json"]);
    assert_eq!(code, Some(1));
    let replay: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(replay["violations"][0]["check"], "one-final");
    // A file that cannot be written costs the file, and not what was found.
    let other = tempfile::tempdir().expect("a directory");
    let name = std::path::Path::new(file).file_name().expect("its name");
    std::fs::create_dir(other.path().join(name)).expect("a folder in its place");
    let seeds = format!("{0}..{1}", report["failure"]["seed"], report["failure"]["seed"].as_u64().unwrap_or(0) + 1);
    let place = other.path().to_str().expect("text");
    let arguments = ["swarm", "--seeds", &seeds, "--mutant", "answers-twice", "--out", place];
    let (code, out, _) = steady_sim(&arguments);
    assert_eq!(code, Some(1), "{out}");
    for said in ["one-final", "the events cannot be written to", "{\"clients\":", "FAILED"] {
        assert!(out.contains(said), "{said}: {out}");
    }
    let (code, out, _) = steady_sim(&[&arguments[..], &["--json"]].concat());
    let told: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert!(code == Some(1) && told["unwritten"]["events"].is_string() && told["events_file"].is_null(), "{out}");
    assert!(replay["trace"].as_array().is_some_and(|trace| trace.len() > 4));
}

#[test]
fn bad_input_of_the_swarm_is_explained() {
    let refused = |arguments: &[&str]| {
        let (code, _, err) = steady_sim(arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {err}");
        assert!(!err.contains("panicked"), "{err}");
        err
    };
    assert!(refused(&["swarm", "--seeds", "9..3"]).contains("A must be below B"));
    assert!(refused(&["swarm", "--seeds", "many"]).contains("0..200"));
    assert!(refused(&["swarm", "--seeds=-1..3"]).contains("0..200"));
    assert!(refused(&["swarm", "--jobs", "0"]).contains("1..=256"));
    assert!(refused(&["swarm", "--mutant", "gremlin"]).contains("answers-twice"));
    assert!(refused(&["replay", "/no/such/file"]).contains("/no/such/file"));
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("bad.events");
    std::fs::write(&file, "{\"clients\":[\"carrier-pigeon\"]}\n").expect("it is written");
    let err = refused(&["replay", file.to_str().expect("text")]);
    assert!(err.contains("bad.events: line 1: unknown variant `carrier-pigeon`"), "{err}");
    std::fs::write(&file, [0xff, 0xfe]).expect("it is written");
    assert!(refused(&["replay", file.to_str().expect("text")]).contains("bad.events"));
}

#[test]
fn the_lab_has_a_row_for_each_request_and_d_differs_in_the_signal() {
    let (code, out, err) = steady_sim(&["lab"]);
    assert_eq!(code, Some(0), "{err}");
    let rows: Vec<&str> = out.lines().filter(|line| line.contains("final response:")).collect();
    assert_eq!(rows.len(), 5, "{out}");
    assert_eq!(rows[3].replace("stream closed", "notifications/cancelled"), rows[4]);
    let (code, out, _) = steady_sim(&["lab", "--json"]);
    assert_eq!(code, Some(0));
    let told: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(told["experiments"][3]["rows"][0]["signal"], "closed_stream");
}

#[test]
fn the_lab_runs_what_the_user_writes_and_explains_what_it_cannot_read() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("mine.lab");
    let name = file.to_str().expect("a path");
    std::fs::write(&file, "transport http\ncall A\nwait 5ms\nbreak A\nwait 5ms\ncomplete A\n").expect("written");
    let (code, out, err) = steady_sim(&["lab", "--script", name]);
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("client: unknown; final response: no; signal: none"), "{out}");
    for (text, what) in [("call A\ncancle A\n", "line 2: `cancle`"), ("cancel B\n", "line 1: no request `B`")] {
        std::fs::write(&file, text).expect("written");
        let (code, _, err) = steady_sim(&["lab", "--script", name]);
        assert_eq!(code, Some(2));
        assert!(err.contains(what) && err.contains(name), "{err}");
    }
    std::fs::write(&file, b"call A\n\xff").expect("written");
    let (_, _, err) = steady_sim(&["lab", "--script", name]);
    assert!(err.contains("line 2: it is not UTF-8"), "{err}");
}

#[test]
fn the_lab_steps_with_keys() {
    let (code, out) = typed(&["lab", "--interactive"], "nw?pcwxq");
    assert_eq!(code, Some(0));
    assert!(out.contains("A  client: completed; final response: yes; signal: none"), "{out}");
    assert!(out.contains("the application sees progress 1 of A"), "{out}");
    let (_, out) = typed(&["lab", "--interactive", "--http"], "nnwAxw");
    assert!(out.contains("A  client: cancelled; final response: no; signal: stream closed"), "{out}");
    assert!(out.contains("B  client: idle timeout"), "the end of the input ends it, too: {out}");
    let (_, out) = typed(&["lab", "--interactive"], "pb");
    assert!(out.contains("n makes one") && out.contains("start with --http"), "{out}");
}

fn typed(arguments: &[&str], keys: &str) -> (Option<i32>, String) {
    use std::io::Write as _;
    use std::process::Stdio;
    let mut command = Command::new(env!("CARGO_BIN_EXE_steady-sim"));
    let mut child = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it runs");
    child.stdin.take().expect("piped").write_all(keys.as_bytes()).expect("typed");
    let output = child.wait_with_output().expect("it ends");
    (output.status.code(), String::from_utf8(output.stdout).expect("text"))
}

#[test]
fn herd_holds_for_the_shipped_policy_and_fails_for_a_fixed_retry() {
    let (code, out, err) = steady_sim(&["herd", "--clients", "3000", "--outage", "0"]);
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(out.contains("attempt 1, 100 ms a line") && out.contains("40.0 %") && out.contains("#####"), "{out}");
    let (code, out, _) = steady_sim(&["herd", "--clients", "3000", "--outage", "1", "--fleet", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(
        (code, &report["holds"], &report["attempts"][0]["policy_permille"]),
        (Some(0), &true.into(), &50.into())
    );
    let (code, out, _) = steady_sim(&["herd", "--clients", "3000", "--fixed"]);
    assert!(code == Some(1) && out.contains("100.0 %") && out.contains("DOES NOT HOLD"), "{out}");
    let (code, out, _) = steady_sim(&["herd", "--clients", "3000", "--jitter", "none"]);
    assert!(code == Some(1) && out.contains("load factor 10.00"), "{out}");
    let (code, out, _) = steady_sim(&["herd", "--clients", "2000", "--replicas", "2", "--table", "--json"]);
    let table: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((code, table["rows"].as_array().map(Vec::len)), (Some(0), Some(12)), "{out}");
    #[cfg(target_os = "linux")]
    assert!(table["peak_rss_kib"].as_u64().is_some_and(|kib| kib > 1000), "{out}");
    for (wrong, said) in [
        (&["--clients", "0"][..], "--clients"),
        (&["--jitter", "some"], "--jitter"),
        (&["--fixed", "--cap-ms", "5"], "--cap-ms"),
        (&["--table", "--outage", "5"], "--outage"),
    ] {
        let (code, _, err) = steady_sim(&[&["herd"], wrong].concat());
        assert!(code == Some(2) && err.contains(said), "{wrong:?}: {err}");
    }
}

#[test]
fn failures_are_shown_the_same_each_time() {
    let (code, out, err) = steady_sim(&["failures"]);
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(out.contains("29 of 29 failures"), "{out}");
    assert_eq!(steady_sim(&["failures"]).1, out);
    let (code, out, _) = steady_sim(&["failures", "in-memory-ledger", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((code, &report["holds"], &report["failures"][0]["wrong_fails"]), (Some(0), &true.into(), &true.into()));
    assert_eq!(steady_sim(&["failures", "--list"]).1.lines().count(), 29);
    let (code, _, err) = steady_sim(&["failures", "in-memry-ledger"]);
    assert!(code == Some(2) && err.contains("did you mean in-memory-ledger?"), "{err}");
    for (name, told) in [("", "--list"), ("e", "--list"), ("lost", " or "), ("cancel", " or ")] {
        let (code, _, err) = steady_sim(&["failures", name]);
        assert!(code == Some(2) && err.contains(told) && err.matches(" or ").count() < 5, "{name}: {err}");
    }
}

#[test]
fn the_explorer_is_one_page_and_the_same_each_time() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("explore.html");
    let name = file.to_str().expect("a path");
    let (code, out, err) = steady_sim(&["explore", "--out", name, "--json"]);
    assert_eq!(code, Some(0), "{err}");
    let told: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    let page = std::fs::read_to_string(&file).expect("the page");
    assert_eq!((&told["bytes"], &told["orderings"]), (&page.len().into(), &576.into()));
    assert!(steady_sim(&["explore", "--out", "-"]).1 == page);
    let (code, _, err) = steady_sim(&["explore", "--out", "/no/such/place/explore.html"]);
    assert!(code == Some(2) && err.contains("/no/such/place/explore.html: cannot be written"), "{err}");
    let (code, _, err) = steady_sim(&["explore"]);
    assert!(code == Some(2) && err.contains("--out"), "{err}");
}

#[test]
fn a_seed_is_printed_as_a_file_that_replays_to_the_same() {
    let dir = tempfile::tempdir().expect("a directory");
    let (code, script, _) = steady_sim(&["swarm", "--seeds", "7..8", "--print"]);
    assert_eq!((code, script.starts_with("{\"clients\":")), (Some(0), true));
    let file = dir.path().join("seven.events");
    std::fs::write(&file, &script).expect("a file");
    let (code, out, err) = steady_sim(&["replay", file.to_str().expect("text"), "--json"]);
    let told: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((code, &told["holds"]), (Some(0), &true.into()), "{err}");
    assert_eq!(told["events"].as_u64(), Some(script.lines().count() as u64 - 1));
}

#[test]
fn a_folder_that_is_not_there_is_an_error_and_no_finding() {
    for args in [&["swarm", "--seeds", "0..1", "--out", "/not/there"][..], &["pages", "--dir", "/not/there"]] {
        let (code, _, err) = steady_sim(args);
        assert!(code == Some(2) && err.contains("/not/there: there is no such folder"), "{args:?}: {err}");
    }
}
