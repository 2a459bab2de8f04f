//! Which proxy the environment means, and what is said of one that cannot be used.

use std::collections::BTreeMap;

use super::{Proxy, ProxyServer};
use crate::client::endpoint::BadUrl;
use crate::client::pool::Target;

fn chosen(environment: &[(&str, &str)], url: &str) -> Result<Option<ProxyServer>, BadUrl> {
    let (scheme, authority) = url.split_once("://").expect("a scheme");
    let (host, port) = authority.rsplit_once(':').expect("a port");
    let target = Target { host: host.trim_matches(['[', ']']).into(), port: port.parse().expect("a port") };
    let set: BTreeMap<&str, &str> = environment.iter().copied().collect();
    Proxy::Environment.choose(&target, scheme == "https", |name| set.get(name).map(|value| (*value).to_owned()))
}

/// The proxy as `HOST:PORT`, or `-`.
fn asked(environment: &[(&str, &str)], url: &str) -> String {
    chosen(environment, url).expect("it can be used").map_or_else(|| "-".into(), |server| server.at.to_string())
}

#[test]
fn each_scheme_has_its_variable_and_lower_case_comes_first() {
    let set = [("http_proxy", "http://a:1"), ("HTTPS_PROXY", "http://b:2/"), ("ALL_PROXY", "c:3")];
    assert_eq!(asked(&set, "http://x.test:80"), "a:1");
    assert_eq!(asked(&set, "https://x.test:443"), "b:2");
    assert_eq!(asked(&set[2..], "http://x.test:80"), "c:3");
    assert_eq!(asked(&set[1..2], "http://x.test:80"), "-");
    assert_eq!(asked(&[("http_proxy", "http://[fd00::1]:3128")], "http://x.test:80"), "[fd00::1]:3128");
    let set = [("http_proxy", "http://low"), ("HTTP_PROXY", "http://up:9"), ("all_proxy", "")];
    assert_eq!(asked(&set, "http://x.test:80"), "low:80");
    assert_eq!(asked(&[("http_proxy", " "), ("HTTP_PROXY", "up:9")], "http://x.test:80"), "up:9");
    assert_eq!(asked(&[], "http://x.test:80"), "-");
    // A header `Proxy` of a request to a CGI program arrives as this variable.
    assert_eq!(asked(&[("HTTP_PROXY", "http://evil"), ("REQUEST_METHOD", "GET")], "http://x.test:80"), "-");
    assert_eq!(asked(&[("http_proxy", "http://good"), ("REQUEST_METHOD", "GET")], "http://x.test:80"), "good:80");
}

#[test]
fn loopback_is_asked_directly() {
    let set = [("all_proxy", "http://p")];
    for host in ["localhost", "LOCALHOST.", "a.localhost", "127.0.0.1", "127.9.9.9", "[::1]", "[::ffff:127.0.0.1]"] {
        assert_eq!(asked(&set, &format!("http://{host}:80")), "-", "{host}");
    }
    for host in ["localhost.test", "notlocalhost", "128.0.0.1", "[::2]"] {
        assert_eq!(asked(&set, &format!("http://{host}:80")), "p:80", "{host}");
    }
}

#[test]
fn the_list_of_exceptions_names_hosts_ports_addresses_and_ranges() {
    for (list, url, exempt) in [
        ("*", "http://x.test:80", true),
        ("x.test", "http://x.test:80", true),
        ("X.Test", "http://x.TEST:80", true),
        ("x.test", "http://a.b.x.test:80", true),
        (".x.test", "http://x.test:80", true),
        ("*.x.test", "http://a.x.test:80", true),
        ("x.test", "http://ax.test:80", false),
        ("a.x.test", "http://x.test:80", false),
        ("other , x.test", "http://x.test:80", true),
        ("x.test:81", "http://x.test:80", false),
        ("x.test:80", "http://x.test:80", true),
        ("10.0.0.0/8", "http://10.9.8.7:80", true),
        ("10.0.0.0/8", "http://11.0.0.1:80", false),
        ("0.0.0.0/0", "http://11.0.0.1:80", true),
        ("10.0.0.1", "http://10.0.0.1:80", true),
        ("10.0.0.1:81", "http://10.0.0.1:80", false),
        ("10.0.0.1/33", "http://10.0.0.1:80", false),
        ("10.0.0.1/x", "http://10.0.0.1:80", false),
        ("0.1", "http://10.0.0.1:80", false),
        ("fd00::/16", "http://[fd00::7]:80", true),
        ("fd00::7", "http://[fd00::7]:80", true),
        ("[fd00::7]:80", "http://[fd00::7]:80", true),
        ("[fd00::7]:81", "http://[fd00::7]:80", false),
        ("0.0.0.0/0", "http://[fd00::7]:80", false),
        (",. ,*.", "http://x.test:80", false),
    ] {
        let said = asked(&[("all_proxy", "p"), ("NO_PROXY", list)], url);
        assert_eq!(said == "-", exempt, "{list:?} {url}");
    }
}

#[test]
fn credentials_are_decoded_and_never_shown() {
    for (url, expected) in [
        // user:p@ss, user:, äö:
        ("http://user:p%40ss@p:3128", "Basic dXNlcjpwQHNz"),
        ("http://user@p:3128", "Basic dXNlcjo="),
        ("http://%C3%A4:%C3%B6@p:3128", "Basic w6Q6w7Y="),
    ] {
        let Proxy::Through(server) = Proxy::through(url).expect("it can be used") else { panic!("{url}") };
        let credentials = server.credentials.as_ref().expect("credentials");
        assert_eq!(credentials.to_str().expect("text"), expected);
        assert!(credentials.is_sensitive());
        assert_eq!(format!("{server:?}"), "ProxyServer(p:3128)");
    }
    for url in [
        "https://user:hush@p",
        "socks5://user:hush@p:1080",
        "http://user:hush%4@p",
        "http://us er:hush@p",
        "user:hush@p:70000",
        "http://user:hush@",
        "http://us%3aer:hush@p",
        "user:hush//more@p:8080",
        "user:hu//sh@p:70000",
        "http://user:hush//more@p:8080",
        "hush@hush://hush@p:8080",
        "user:hush://hush@p:8080",
    ] {
        let error = Proxy::through(url).expect_err("it cannot be used");
        assert!(!format!("{error} {error:?}").contains("hush"), "{error}");
        assert!(error.to_string().contains("as a proxy"), "{error}");
    }
    let error = chosen(&[("ALL_PROXY", "socks5://u:hush@p:1080")], "http://x.test:80").expect_err("not supported");
    assert!(error.to_string().contains("from ALL_PROXY; Proxy::Direct uses none"), "{error}");
    // What is not asked of it does not fail because of it.
    let set = [("ALL_PROXY", "socks5://p:1080"), ("no_proxy", "x.test")];
    assert_eq!(asked(&set, "http://x.test:80"), "-");
}
