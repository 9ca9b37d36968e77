// Gosym reads a Go program's symbol table with debug/gosym and prints what it finds.
//
//	gosym PROGRAM TEXTSTART STEPS
//
// TEXTSTART is the address of runtime.text, in hexadecimal: from Go 1.26 on the table does not
// have it. For each function it prints "F entry end name", and for STEPS addresses spread over it
// "L address line file". Addresses are in hexadecimal.
package main

import (
	"bufio"
	"debug/elf"
	"debug/gosym"
	"fmt"
	"os"
	"strconv"
)

func main() {
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(program, text, count string) error {
	textStart, err := strconv.ParseUint(text, 16, 64)
	if err != nil {
		return err
	}
	steps, err := strconv.ParseUint(count, 10, 64)
	if err != nil {
		return err
	}
	file, err := elf.Open(program)
	if err != nil {
		return err
	}
	defer file.Close()
	section := file.Section(".gopclntab")
	if section == nil {
		section = file.Section(".data.rel.ro.gopclntab")
	}
	if section == nil {
		return fmt.Errorf("%s has no section for pclntab", program)
	}
	data, err := section.Data()
	if err != nil {
		return err
	}
	table, err := gosym.NewTable(nil, gosym.NewLineTable(data, textStart))
	if err != nil {
		return err
	}
	output := bufio.NewWriterSize(os.Stdout, 1<<20)
	defer output.Flush()
	for _, function := range table.Funcs {
		fmt.Fprintf(output, "F %x %x %s\n", function.Entry, function.End, function.Name)
		for step := uint64(0); step < steps; step++ {
			pc := function.Entry + (function.End-function.Entry)*step/steps
			file, line, _ := table.PCToLine(pc)
			fmt.Fprintf(output, "L %x %d %s\n", pc, line, file)
		}
	}
	return nil
}
