// Sleeper is the one program of the test's container image: it says which GPUs it was
// given, and sleeps until it is told to end.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	fmt.Println("GPUs=" + os.Getenv("NVIDIA_VISIBLE_DEVICES"))
	<-end
}
