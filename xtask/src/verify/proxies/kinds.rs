//! The proxies: the defaults of each, the line that forwards, a shorter idle timeout, and one process of it.

use crate::error::Error;
use crate::http::GUARD;
use crate::process::Command;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The idle timeout that every proxy is given, in seconds: their own ones are a minute and more.
pub(super) const IDLE_S: u64 = 3;

/// A proxy, or one more way to set it up.
pub(super) struct Proxy {
    pub(super) name: &'static str,
    /// A program and arguments that succeed if it is there.
    pub(super) probe: &'static [&'static str],
    /// The file of its settings, for the folder that it may write to, its port, and the server's address.
    settings: fn(folder: &str, port: u16, server: &str) -> String,
    /// How it is started with that file.
    start: fn(folder: &Path, settings: &Path) -> Command,
}

pub(super) const NGINX: Proxy = Proxy {
    name: "nginx",
    probe: &["nginx", "-v"],
    settings: |folder, port, server| nginx(folder, port, server, ""),
    start: start_nginx,
};

/// nginx that does not heed `X-Accel-Buffering`: what the header does is seen from what is missing here.
pub(super) const NGINX_BUFFERING: Proxy = Proxy {
    name: "nginx that ignores X-Accel-Buffering",
    settings: |folder, port, server| nginx(folder, port, server, "proxy_ignore_headers X-Accel-Buffering;"),
    ..NGINX
};

/// nginx that takes an answer whole, hands it out at a byte a second if it is asked to, and does not tell the server that the
/// client is gone.
pub(super) const NGINX_SLOW: Proxy = Proxy {
    name: "nginx that holds answers",
    settings: |folder, port, server| {
        let hold = "proxy_ignore_headers X-Accel-Buffering; proxy_ignore_client_abort on; proxy_read_timeout 60s; \
                    if ($http_x_slow) { set $limit_rate 1; }";
        nginx(folder, port, server, hold)
    },
    ..NGINX
};

const HAPROXY: Proxy = Proxy {
    name: "haproxy",
    probe: &["haproxy", "-v"],
    settings: |_, port, server| haproxy(port, server, ""),
    start: |_, settings| Command::new("haproxy").args(["-db", "-f"]).arg(settings),
};

/// What makes HAProxy pass on at once what it has, and a client's end.
const HAPROXY_PROMPT: Proxy = Proxy {
    name: "haproxy, two options",
    settings: |_, port, server| haproxy(port, server, "  option http-no-delay\n  option abortonclose\n"),
    ..HAPROXY
};

const APACHE: Proxy = Proxy {
    name: "apache",
    probe: &["apache2", "-v"],
    settings: apache,
    start: |_, settings| Command::new("apache2").args(["-DFOREGROUND", "-f"]).arg(settings),
};

const CADDY: Proxy = Proxy {
    name: "caddy",
    probe: &["caddy", "version"],
    settings: |_, port, server| {
        format!(
            "{{\n admin off\n auto_https off\n}}\nhttp://:{port} {{\n bind 127.0.0.1\n \
             reverse_proxy {server} {{\n  transport http {{\n   read_timeout {IDLE_S}s\n  }}\n }}\n}}\n"
        )
    },
    start: |folder, settings| {
        let folder = folder.display().to_string();
        let command = Command::new("caddy").args(["run", "--adapter", "caddyfile", "--config"]).arg(settings);
        command.env("HOME", &folder).env("XDG_CONFIG_HOME", &folder).env("XDG_DATA_HOME", &folder)
    },
};

/// All that are put in front of the server.
pub(super) const PROXIES: [Proxy; 5] = [NGINX, HAPROXY, HAPROXY_PROMPT, APACHE, CADDY];

fn nginx(folder: &str, port: u16, server: &str, more: &str) -> String {
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("  {kind}_temp_path {folder}/{kind};\n"))
        .concat();
    format!(
        "daemon off;\nmaster_process off;\npid {folder}/pid;\nerror_log {folder}/error.log;\nevents {{}}\nhttp {{\n\
         {temporary}  access_log off;\n  gzip on;\n  proxy_read_timeout {IDLE_S}s;\n  server {{\n    \
         listen 127.0.0.1:{port};\n    location /mcp {{ proxy_pass http://{server}; {more} }}\n  }}\n}}\n"
    )
}

fn start_nginx(folder: &Path, settings: &Path) -> Command {
    let log = folder.join("error.log");
    Command::new("nginx").args(["-p"]).arg(folder).args(["-e"]).arg(log).args(["-c"]).arg(settings)
}

fn haproxy(port: u16, server: &str, more: &str) -> String {
    format!(
        "defaults\n  mode http\n  timeout connect 5s\n  timeout client {IDLE_S}s\n  timeout server {IDLE_S}s\n{more}\
         listen mcp\n  bind 127.0.0.1:{port}\n  server steady {server}\n"
    )
}

fn apache(folder: &str, port: u16, server: &str) -> String {
    let modules = ["mpm_event", "authz_core", "proxy", "proxy_http"]
        .map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"))
        .concat();
    format!(
        "ServerRoot {folder}\nDefaultRuntimeDir {folder}\nPidFile {folder}/pid\nServerName localhost\n\
         Listen 127.0.0.1:{port}\n{modules}ErrorLog {folder}/error.log\nTimeout {IDLE_S}\n\
         ProxyPass /mcp http://{server}/mcp\n"
    )
}

/// A running proxy, in a folder of its own, without privileges.
pub(super) struct Running {
    child: Child,
    folder: PathBuf,
    /// Where it listens.
    pub(super) address: String,
}

impl Running {
    /// Starts it in front of `server`, and waits until it accepts.
    pub(super) fn start(proxy: &Proxy, server: &str) -> Result<Self, Error> {
        let mut last = Error::check("not tried");
        // The port is free when it is chosen, and may not be when the proxy wants it.
        for _ in 0..3 {
            match Self::attempt(proxy, server) {
                Ok(running) => return Ok(running),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn attempt(proxy: &Proxy, server: &str) -> Result<Self, Error> {
        let listener = TcpListener::bind("127.0.0.1:0").map_err(|why| Error::check(format!("no free port: {why}")))?;
        let port = listener.local_addr().map_err(|why| Error::check(why.to_string()))?.port();
        drop(listener);
        let folder = std::env::temp_dir().join(format!("steady-proxy-{}-{port}", std::process::id()));
        fs::create_dir_all(&folder).map_err(Error::file(&folder))?;
        let settings = folder.join("settings");
        let text = (proxy.settings)(&folder.display().to_string(), port, server);
        fs::write(&settings, text).map_err(Error::file(&settings))?;
        let command = unprivileged((proxy.start)(&folder, &settings), &folder)?;
        let log = folder.join("output");
        let output = fs::File::create(&log).map_err(Error::file(&log))?;
        let again = output.try_clone().map_err(Error::file(&log))?;
        let child = command.builder().stdout(Stdio::from(output)).stderr(Stdio::from(again)).spawn();
        let child = child.map_err(|why| command.not_started(&why))?;
        let mut running = Self { child, folder, address: format!("127.0.0.1:{port}") };
        running.accepts(proxy)?;
        Ok(running)
    }

    fn accepts(&mut self, proxy: &Proxy) -> Result<(), Error> {
        let started = Instant::now();
        while started.elapsed() < GUARD {
            if TcpStream::connect(&self.address).is_ok() {
                return Ok(());
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(Error::check(format!("{} ends with {status}:\n{}", proxy.name, self.said())));
            }
            thread::sleep(Duration::from_millis(10));
        }
        Err(Error::check(format!("{} does not accept:\n{}", proxy.name, self.said())))
    }

    fn said(&self) -> String {
        ["output", "error.log"].map(|name| fs::read_to_string(self.folder.join(name)).unwrap_or_default()).concat()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Politely, since some have processes of their own to end.
        let asked = Command::new("kill").args([self.child.id().to_string()]).works();
        let since = Instant::now();
        while asked && since.elapsed() < GUARD && matches!(self.child.try_wait(), Ok(None)) {
            thread::sleep(Duration::from_millis(10));
        }
        let _gone = self.child.kill().and_then(|()| self.child.wait());
        let _left_behind = fs::remove_dir_all(&self.folder);
    }
}

/// The command as nobody, if this is root; the folder is nobody's then.
fn unprivileged(command: Command, folder: &Path) -> Result<Command, Error> {
    let root = Command::line("id -u").capture().is_ok_and(|done| done.stdout.trim() == "0");
    if !root {
        return Ok(command);
    }
    let line = "chown -R 65534:65534";
    Command::line(line).arg(folder).capture()?.success_or_exit(line)?;
    Ok(command.behind(Command::line("setpriv --reuid=65534 --regid=65534 --clear-groups")))
}
