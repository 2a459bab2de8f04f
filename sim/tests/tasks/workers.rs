//! Workers in processes of their own, and what becomes of a task whose worker is killed.

use serde_json::json;

use crate::support::{BOTH, Shop, status};

#[test]
fn a_worker_in_another_process_works_and_its_progress_is_seen() {
    for transport in BOTH {
        let shop = Shop::new();
        let mut server = shop.server(transport, &[]);
        let id = server.task("pack", json!({"parcels": 3}));
        assert_eq!(server.get(&id)["statusMessage"], "queued");
        let worker = shop.worker("elsewhere", &[]);
        worker.hear("packed 3 of");
        let done = server.end(&id);
        assert_eq!((status(&done), &done["statusMessage"]), ("completed", &"parcel 3".into()));
        assert_eq!(done["result"]["content"][0]["text"], "3 parcels, by elsewhere");
    }
}

#[test]
fn a_killed_worker_without_an_open_step_is_followed_by_another_after_its_last_checkpoint() {
    for transport in BOTH {
        let shop = Shop::new();
        let mut server = shop.server(transport, &[]);
        let id = server.task("pack", json!({"parcels": 4, "pauseMs": 600_000}));
        let first = shop.worker("first", &["--lease", "300"]);
        first.hear("packed 1 of");
        first.kill();
        assert_eq!(status(&server.get(&id)), "working");
        let second = shop.worker("second", &[]);
        assert!(second.hear("packed ").starts_with("2 of"), "parcel 1 is not packed again");
        server.cancel(&id);
        assert_eq!(status(&server.end(&id)), "cancelled");
    }
}

#[test]
fn a_worker_that_is_killed_inside_an_external_step_leaves_its_task_in_doubt_and_nobody_runs_it_again() {
    for transport in BOTH {
        let shop = Shop::new();
        let mut server = shop.server(transport, &[]);
        let id = server.task("wire", json!({}));
        let first = shop.worker("first", &["--lease", "300"]);
        assert_eq!(first.hear("external"), id);
        first.kill();
        // The second one claims what it can: the mark comes from there, and another task shows that it is at work.
        let _second = shop.worker("second", &[]);
        let doubt = server.wait(&id, |task| task.get("statusMessage").is_some());
        let message = doubt["statusMessage"].as_str().expect("a text");
        assert!(status(&doubt) == "working" && message.contains("unknown outcome"), "{doubt}");
        let other = server.task("end", json!({"how": "good"}));
        assert_eq!(status(&server.end(&other)), "completed");
        server.cancel(&id);
        assert_eq!(status(&server.get(&id)), "working", "not even a cancellation ends what nobody knows");
    }
}
