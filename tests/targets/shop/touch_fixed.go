//go:build fixed

package main

import "time"

// Touch notes that a customer is here; it returns how many visits there were so far.
func (s *Sessions) Touch(customer string) int {
	s.journal.Append(customer)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[customer] = time.Now()
	s.visits++
	return s.visits
}
