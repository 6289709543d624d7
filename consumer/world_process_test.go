package consumer

import "time"

// What happens to a member's process and to its connection.

// watch asks the stream about itself at every renewal, and tells about the
// connection.
func (m *simMember) watch() {
	life := m.life
	m.world.after(simRenew, func() {
		if m.life != life || !m.alive {
			return
		}
		m.process(func(time.Time) {
			if m.life == life {
				m.check()
				m.watch()
			}
		})
	})
}

// check brings what the stream says about itself, if it answers.
func (m *simMember) check() {
	w := m.world
	if !m.connected {
		return
	}
	var facts StreamFacts
	m.request(-1, []func(){func() { facts = m.facts() }}, "check", func(now time.Time, err error) {
		switch {
		case err != nil:
		case m.lost:
			m.lost = false
			w.note("%s: the connection is back", m.name)
			m.part.Reconnected(now, facts)
		default:
			m.part.StreamChecked(now, facts)
		}
	})
}

// disconnect cuts the connection for so long.
func (m *simMember) disconnect(d time.Duration) {
	w := m.world
	if !m.connected || !m.alive {
		return
	}
	w.note("FAULT %s: loses its connection to NATS for %s", m.name, d)
	m.connected = false
	m.conn++
	life := m.life
	if f := m.fetch; f != nil {
		w.after(simFetchWait, func() { f.finish(nil) })
	}
	// Word of it may come late, even after the connection is back.
	w.after(w.upTo(5*time.Second), func() {
		m.process(func(now time.Time) {
			if life == m.life {
				m.lost = true
				m.part.Connected(now, false)
			}
		})
	})
	w.after(d, func() {
		m.connected = true
		w.after(w.hop(), func() {
			m.process(func(time.Time) {
				if life == m.life {
					m.check()
				}
			})
		})
	})
}

func (m *simMember) freeze(d time.Duration) {
	w := m.world
	if m.frozen || !m.alive {
		return
	}
	w.note("FAULT %s: is frozen for %s", m.name, d)
	m.frozen = true
	life := m.life
	w.after(d, func() {
		if life == m.life {
			m.thaw()
		}
	})
}

func (m *simMember) thaw() {
	if !m.frozen {
		return
	}
	m.world.note("%s: goes on", m.name)
	m.frozen = false
	backlog := m.backlog
	m.backlog = nil
	for _, event := range backlog {
		m.process(event)
	}
}

// crash ends the process without a word. Its pulls stay outstanding and its
// requests are under way.
func (m *simMember) crash() {
	if !m.alive {
		return
	}
	m.world.note("FAULT %s: crashes", m.name)
	m.alive, m.frozen, m.backlog = false, false, nil
	m.life++
	m.timer++
}

func (m *simMember) stop() {
	if !m.alive {
		return
	}
	m.world.note("FAULT %s: is asked to stop", m.name)
	life := m.life
	m.process(func(now time.Time) {
		if life == m.life {
			m.part.Stop(now)
		}
	})
}

// assign tells the process whether it is to own the partition.
func (m *simMember) assign(own bool) {
	if !m.alive {
		return
	}
	life := m.life
	m.process(func(now time.Time) {
		if life == m.life {
			m.world.note("%s: is to own the partition: %t", m.name, own)
			m.part.Assign(now, own)
		}
	})
}
