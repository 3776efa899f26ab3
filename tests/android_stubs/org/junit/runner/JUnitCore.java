package org.junit.runner;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import org.junit.Test;

/** Runs the tests of classes, each on an object of its own; ends with 1 at the first that fails. */
public class JUnitCore {
    public static void main(String... classes) throws ReflectiveOperationException {
        for (String name : classes) {
            for (Method method : Class.forName(name).getDeclaredMethods()) {
                if (!method.isAnnotationPresent(Test.class)) continue;
                try {
                    method.invoke(Class.forName(name).getDeclaredConstructor().newInstance());
                } catch (InvocationTargetException error) {
                    error.getCause().printStackTrace();
                    System.exit(1);
                }
                System.out.println(method.getName());
            }
        }
    }
}
