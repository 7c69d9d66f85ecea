// Judges what `soak --history FILE` wrote: go run . < FILE
//
// The model of one key of one round is two objects, which share no state and are judged apart:
//
//   - A mutex. An acquire takes it only while it is free, with a greater fencing token than every one before. A release frees it for
//     sure. A hold that ends otherwise (its deadline passed, its process was killed, its release was not answered) may be lost at any
//     time from then on, and until then nobody else gets the lock. A lock may always be busy: refusals say nothing here, nor does an
//     acquire without an answer, since what it may have been given may also have been lost.
//   - A register behind fencing tokens. It refuses a smaller token than it has seen, and nothing else; it reads as it was written. A
//     call without an answer takes effect at any later time, or never.
//
// What may overlap: a master that fails may take locks with it that its replica did not have. Holds of the time from such a fault until
// three seconds after it, when all have noticed, may be lost at any time from the fault on, and a process that has not noticed hands
// on its lease with tokens of before. Redis and a quorum have no such time.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"math"
	"os"
	"strings"

	"github.com/anishathalye/porcupine"
)

const noticed = 3_000_000_000

var forgets = map[string]string{
	"sentinel": " FailOver KillMaster StopMaster StopMasterUntilReplaced UnplannedFailOver ",
	"cluster":  " KillMaster StopMaster StopMasterUntilReplaced UnplannedFailOver ",
}

// A line of the history.
type call struct {
	Round, Client, Key, Op, Outcome string
	Hold, Fence, Value, Invoke      int64
	Return                          *int64
	excused                         bool
}

// Of a mutex the hold that has it, of a register its value; and the greatest token.
type state struct{ holder, value, fence int64 }

func step(before, input, _ interface{}) (bool, interface{}) {
	s, c := before.(state), input.(*call)
	switch c.Op {
	case "acquire", "try":
		if s.holder != 0 || (c.Fence != 0 && c.Fence <= s.fence && !c.excused) {
			return false, s
		}
		s.holder = c.Hold
		if c.Fence > s.fence {
			s.fence = c.Fence
		}
	case "release":
		if s.holder != c.Hold {
			return false, s
		}
		s.holder = 0
	case "lost":
		if s.holder == c.Hold {
			s.holder = 0
		}
	case "open", "write":
		if c.Fence < s.fence {
			return c.Outcome != "ok", s
		}
		if c.Outcome == "refused" || (c.Op == "open" && c.Outcome == "ok" && c.Value != s.value) {
			return false, s
		}
		s.fence = c.Fence
		if c.Op == "write" {
			s.value = c.Value
		}
	case "read":
		return c.Value == s.value, s
	}
	return true, s
}

// Lets a hold be lost from the first fault on that may have taken it.
func excuse(grant, end *call, faults []*call) {
	over := end.Invoke
	if end.Return != nil {
		over = *end.Return
	}
	for _, fault := range faults {
		if fault.Invoke < over && *grant.Return < *fault.Return+noticed {
			grant.excused = true
			end.Op, end.Return, end.Invoke = "lost", nil, max(fault.Invoke, *grant.Return)
			return
		}
	}
}

func max(a, b int64) int64 {
	if a > b {
		return a
	}
	return b
}

func main() {
	var calls []*call
	faults, grants, objects := map[string][]*call{}, map[string]*call{}, map[string][]porcupine.Operation{}
	for lines := json.NewDecoder(os.Stdin); lines.More(); {
		c := &call{}
		if err := lines.Decode(c); err != nil {
			log.Fatal(err)
		}
		calls = append(calls, c)
		if place := strings.Split(c.Round, "/")[0]; c.Op == "fault" && strings.Contains(forgets[place], " "+c.Key+" ") {
			faults[c.Round] = append(faults[c.Round], c)
		}
	}
	for _, c := range calls {
		// Of acquires and releases those count that were successful. A hold without such a release has a line that it is lost.
		if c.Op == "fault" || (c.Hold != 0 && c.Op != "lost" && c.Outcome != "ok") {
			continue
		}
		object, hold := c.Round+" "+c.Key, fmt.Sprint(c.Round, " ", c.Hold)
		switch c.Op {
		case "open", "write", "read":
			object += " register"
		case "acquire", "try":
			grants[hold] = c
		default:
			excuse(grants[hold], c, faults[c.Round])
		}
		end := int64(math.MaxInt64)
		if c.Return != nil {
			end = *c.Return
		}
		objects[object] = append(objects[object], porcupine.Operation{Input: c, Call: c.Invoke, Return: end})
	}
	model := porcupine.Model{Init: func() interface{} { return state{} }, Step: step}
	broken := 0
	for object, history := range objects {
		if !porcupine.CheckOperations(model, history) {
			fmt.Println("not linearizable:", object)
			broken++
		}
	}
	fmt.Printf("%d calls, %d objects, %d not linearizable\n", len(calls), len(objects), broken)
	if broken > 0 {
		os.Exit(1)
	}
}
