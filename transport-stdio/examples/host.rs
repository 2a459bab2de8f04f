//! A program that holds a client: it starts the server that its arguments name, tells its pid, and stays.

use std::process::ExitCode;

use steady_stdio::client::{Client, ClientConfig, Command, config};

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let Some(program) = arguments.next() else { return ExitCode::FAILURE };
    let command = Command::new(program).args(arguments).config(ClientConfig { probe: None, ..config() });
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return ExitCode::FAILURE;
    };
    runtime.block_on(async {
        let Ok(client) = Client::spawn(command).await else { return ExitCode::FAILURE };
        let pid = client.status().pid.unwrap_or_default();
        #[expect(clippy::print_stdout, reason = "how the test learns the pid")]
        {
            println!("{pid}");
        }
        std::future::pending().await
    })
}
