//! Whether a script says what can be: numbers within their limits, and names of what there is.

use super::{Event, FURTHEST_MS, LONGEST_MS, MOST, Server, Tool, World};

fn within<T: PartialOrd + std::fmt::Display>(name: &str, value: T, least: T, most: T) -> Result<(), String> {
    if value < least || value > most {
        return Err(format!("{name} is {value}, and must be {least} to {most}"));
    }
    Ok(())
}

impl World {
    pub(super) fn check(&self) -> Result<(), String> {
        within("clients: their number", self.clients.len(), 1, MOST)?;
        within("replicas", self.replicas, 1, MOST)?;
        within("pipe_bytes", self.pipe_bytes, 16, 1 << 24)?;
        within("server_in_flight", self.server_in_flight, 1, 4096)?;
        within("server_buffer", self.server_buffer, 1, 4096)?;
        within("client_in_flight", self.client_in_flight, 1, 4096)?;
        within("attempts", self.attempts, 1, 16)?;
        within("horizon_ms", self.horizon_ms, 0, 10 * 24 * LONGEST_MS)?;
        within("workers", self.workers, 0, MOST)?;
        within("retention_ms", self.retention_ms, 1, 10 * 24 * LONGEST_MS)?;
        let times = [
            ("delay_ms", self.delay_ms, 0),
            ("server_max_ms", self.server_max_ms, 1),
            ("server_idle_ms", self.server_idle_ms, 0),
            ("grace_ms", self.grace_ms, 0),
            ("idle_ms", self.idle_ms, 1),
            ("max_ms", self.max_ms, 1),
            ("write_stall_ms", self.write_stall_ms, 1),
            ("lease_ms", self.lease_ms, u64::from(self.workers > 0)),
        ];
        times.into_iter().try_for_each(|(name, ms, least)| within(name, ms, least, LONGEST_MS))
    }
}

impl Event {
    pub(super) fn check(&self, world: &World) -> Result<(), String> {
        let client = |client: usize| within("client", client, 0, world.clients.len() - 1);
        let server = |server: Server| match server {
            Server::Child(of) => client(of),
            Server::Replica(replica) => within("replica", replica, 0, world.replicas - 1),
            Server::Worker(_) if world.workers == 0 => Err("the world has no workers".to_owned()),
            Server::Worker(worker) => within("worker", worker, 0, world.workers - 1),
        };
        match *self {
            Self::Call { client: of, tool, .. } => client(of).and_then(|()| tool.check()),
            Self::Cancel { client: of, .. }
            | Self::CancelTask { client: of, .. }
            | Self::Drop { client: of, .. }
            | Self::Listen { client: of, .. }
            | Self::Unlisten { client: of, .. }
            | Self::Hold { client: of, .. }
            | Self::Release { client: of, .. }
            | Self::Cut { client: of }
            | Self::StopReading { client: of }
            | Self::Read { client: of }
            | Self::CrashClient { client: of }
            | Self::RestartClient { client: of }
            | Self::Close { client: of }
            | Self::Double { client: of } => client(of),
            Self::Delay { client: of, ms } => client(of).and_then(|()| within("ms", ms, 0, LONGEST_MS)),
            Self::Wait { ms } | Self::Disk { ms } => within("ms", ms, 0, LONGEST_MS),
            Self::Change => Ok(()),
            Self::Step { polls } => within("polls", polls, 0, 1_000_000),
            Self::Clock { ms } => within("ms", ms, -FURTHEST_MS, FURTHEST_MS),
            Self::Freeze(of)
            | Self::Thaw(of)
            | Self::Crash(of)
            | Self::Drain(of)
            | Self::Restart(of)
            | Self::Collect(of)
            | Self::DieInCommit { server: of, .. } => server(of),
        }
    }
}

impl Tool {
    fn check(self) -> Result<(), String> {
        const BYTES: u32 = 1 << 20;
        match self {
            Self::Read { bytes } => within("bytes", bytes, 0, BYTES),
            Self::Work { steps, step_ms } => {
                within("steps", steps, 0, 10_000).and_then(|()| within("step_ms", step_ms, 0, 3_600_000))
            }
            Self::Job { steps, step_ms, .. } => {
                within("steps", steps, 0, 1000).and_then(|()| within("step_ms", step_ms, 0, 3_600_000))
            }
            Self::Flood { steps, bytes } => {
                within("steps", steps, 0, 10_000).and_then(|()| within("bytes", bytes, 0, 1 << 16))
            }
            Self::Deaf { ms } | Self::Stubborn { ms } => within("ms", ms, 0, 3_600_000),
            Self::Add { .. } | Self::AddOnce { .. } | Self::Hang | Self::Fail | Self::Panic => Ok(()),
        }
    }
}
